"""The explorer's page of an archive with 10 000 cells in a headless Chromium without a GPU.

The archive is made of formulas; making the page is timed, then loading it, and panning at three zooms for
two seconds each.

    python benchmarks/explorer.py [--quick] [--cells 10000]

--quick has 1000 cells.

The last line is one JSON object: seconds, MB, and ms from picture to picture and of our own work in it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

PAN = """new Promise((done) => {
  const intervals = [], work = [];
  let picture = 0, last = performance.now();
  const step = (now) => {
    intervals.push(now - last);
    last = now;
    const begun = performance.now();
    setZoom(state.zoom[0], 0.5 + 0.2 * Math.sin(picture / 20), 0.5 + 0.2 * Math.cos(picture / 20));
    tell();
    work.push(performance.now() - begun);
    if (++picture < 120) return requestAnimationFrame(step);
    const share = (values, at) => values.slice(5).sort((one, other) => one - other)[Math.floor(at * 114)];
    done({ interval: share(intervals, 0.5), interval_95: share(intervals, 0.95), work: share(work, 0.5) });
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="1000 cells, under 40 s")
    options = parser.parse_args()
    cells = 1000 if options.quick else options.cells
    archives: Any = import_module("tests.explorer.archives")
    browser: Any = import_module("tests.explorer.browser")
    explorer: Any = import_module("elites.explorer.explore")
    content: Any = import_module("elites.explorer.content")
    archive = archives.made_up(2, cells, 0.9)
    shown = content.Content(Path("made-up"), archive, archives.replicated(archive))
    measured: dict[str, Any] = {"cells": cells}
    with tempfile.TemporaryDirectory() as folder, browser.Browser(webgl=False) as page:
        begun = time.perf_counter()
        text = explorer.make_text([shown], "none")
        measured["made_s"] = round(time.perf_counter() - begun, 2)
        measured["mb"] = round(len(text.encode()) / 1e6, 2)
        path = Path(folder) / "page.html"
        path.write_text(text)
        page.open(path)
        measured["ready_ms"] = round(page.run("performance.getEntriesByName('ready')[0].startTime"))
        for zoom in (1, 3, 8):
            page.run(f"setZoom({zoom}, 0.5, 0.5)")
            page.settle()
            measured[f"pan_at_{zoom}"] = page.run(PAN)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
