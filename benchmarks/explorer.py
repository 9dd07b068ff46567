"""The explorer's pages in a headless Chromium without a GPU.

The first page is a map without movements, of a synthetic archive with 10 000 cells. The benchmark times
making it, loading it, and panning at three zooms for two seconds each. The second page has 1000 walkers that
move for five seconds, each with replications. Their controllers are random and their episodes do not end with
a fall. The benchmark times making and loading it.

    python benchmarks/explorer.py [--quick] [--cells 10000] [--walkers 1000]

--quick uses 1000 cells and 8 walkers.

The last line is one JSON object: seconds, seconds of all processors together, MB, ms from the start of
loading to the first picture of the map, ms between pictures and of our own work in them, and the number of
walkers with replications.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import elites
from elites.results.corrected import save_corrected
from elites.results.folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1]))
archives: Any = import_module("tests.explorer.archives")
browsers: Any = import_module("tests.browser")

PAN = """new Promise((done) => {
  const intervals = [], work = [];
  let picture = 0, last = performance.now();
  const step = (now) => {
    intervals.push(now - last);
    last = now;
    const begun = performance.now();
    setZoom(state.zoom[0], 0.5 + 0.2 * Math.sin(picture / 20), 0.5 + 0.2 * Math.cos(picture / 20));
    notifyListeners();
    work.push(performance.now() - begun);
    if (++picture < 120) return requestAnimationFrame(step);
    const share = (values, at) => values.slice(5).sort((one, other) => one - other)[Math.floor(at * 114)];
    const rounded = (value) => Math.round(10 * value) / 10;
    done({
      interval: rounded(share(intervals, 0.5)), interval_95: rounded(share(intervals, 0.95)),
      work: rounded(share(work, 0.5)), work_95: rounded(share(work, 0.95)),
    });
  };
  requestAnimationFrame(step);
})"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--walkers", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="1000 cells and 8 walkers")
    options = parser.parse_args()
    cells, walkers = (1000, 8) if options.quick else (options.cells, options.walkers)
    with tempfile.TemporaryDirectory() as folder, browsers.Browser(webgl=False) as browser:
        browser.prefer(prefers_reduced_motion="no-preference")
        measured = {"map": measure_map(Path(folder), browser, cells)}
        if walkers:
            measured["walkers"] = measure_walkers(Path(folder), browser, walkers)
    print(json.dumps(measured))


def measure_map(folder: Path, browser: Any, cells: int) -> dict[str, Any]:
    """The map without movements."""
    run = save_run(folder / "map", archives.synthetic_archive(2, cells, 0.9))
    measured = {"cells": cells, **made(run, "none", browser)}
    for zoom in (1, 3, 8):
        browser.run(f"setZoom({zoom}, 0.5, 0.5)")
        browser.settle()
        measured[f"pan_at_{zoom}"] = browser.run(PAN)
    return measured


def measure_walkers(folder: Path, browser: Any, count: int) -> dict[str, Any]:
    """A page in which every walker moves for five seconds."""
    archive = archives.synthetic_archive(2, count, 1.0)
    task = elites.make_task("qd-walker", ends_on_fall=False)
    policy = elites.Policy.for_task(task, (128, 128))
    weights = np.random.default_rng(0).normal(0, 0.1, (count, policy.parameter_count))
    archive = replace(
        archive,
        parameters=weights.astype(np.float32),
        policy_sizes=np.array([task.observation_size, 128, 128, task.action_size], np.int32),
    )
    measured = made(save_run(folder / "walkers", archive), "all", browser)
    shown = "Object.values(runs[0].header.gaits.elites)"
    measured["with_replications"] = browser.run(f"{shown}.filter((all) => all.length > 1).length")
    measured["replications"] = browser.run(f"{shown}.reduce((sum, all) => sum + all.length - 1, 0)")
    return {"walkers": count, **measured}


def made(run: Path, gaits: Any, browser: Any) -> dict[str, Any]:
    """Makes the page of a run and opens it."""
    begun, busy = time.perf_counter(), time.process_time()
    page = elites.explore(run, gaits=gaits)
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    first = []
    for _ in range(3):
        browser.open(page)
        first.append(browser.run("performance.getEntriesByName('ready')[0].startTime"))
    return {
        "made_s": round(seconds, 1),
        "busy_s": round(busy, 1),
        "mb": round(page.stat().st_size / 1e6, 2),
        "first_picture_ms": round(sorted(first)[1]),
    }


def save_run(folder: Path, archive: Any) -> Path:
    """The folder of a run with this archive and its correction."""
    run = RunFolder(folder)
    config = elites.RunConfig(
        algorithm="pga-map-elites",
        task="qd-walker",
        evaluations=30_000,
        task_parameters={"ends_on_fall": False},
    )
    run.create(config.record())
    run.write_archive(archive)
    save_corrected(run.corrected_path(), archives.replicated(archive))
    metrics = "generation,evaluations,environment_steps,gradient_steps,qd_score,max_fitness,coverage,invalid"
    run.metrics.write_text(f"{metrics}\n1,100,100,0,1.0,1.0,0.1,0\n")
    return folder


if __name__ == "__main__":
    main()
