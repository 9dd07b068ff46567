"""The report of a study as large as the paper's: 4 tasks, 8 algorithms, 20 seeds, 10 000 generations each.

The runs are synthetic, with logs, archives and corrections like those of real ones; creating them is not
timed. The report runs in its own process, as `elites study report` does, which is measured.

    python benchmarks/report.py [--quick]

The last line is one JSON object: seconds, and MiB resident at the peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASKS = ("qd-walker", "qd-halfcheetah", "qd-ant", "qd-hopper")
PROGRAM = """
import resource, sys, time
from elites.reports.study.report import report_study
started = time.perf_counter()
report_study(sys.argv[1])
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs, under 40 s")
    quick = parser.parse_args().quick
    from shared.runs import make_runs

    from elites import ALGORITHMS
    from elites.results.study import StudyFolder

    tasks, seeds, generations = (TASKS[:1], 3, 2000) if quick else (TASKS, 20, 10_000)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "study"
        make_runs(folder, tasks, tuple(ALGORITHMS), seeds, generations)
        logs = sum(path.stat().st_size for path in folder.rglob("*.csv"))
        started = time.perf_counter()
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True
        )
        seconds = time.perf_counter() - started
        report = StudyFolder(folder).report
        sizes = {path.name: path.stat().st_size for path in (report.metrics, report.page)}
    inside, peak = map(float, process.stdout.split())
    unit = 1024 if sys.platform != "darwin" else 1024**2  # of ru_maxrss, in MiB
    runs = len(tasks) * len(ALGORITHMS) * seeds
    print(f"{runs} runs of {generations} generations, {logs / 2**20:.0f} MiB of logs")
    print(f"report {inside:.1f} s, with its start {seconds:.1f} s, {peak / unit:.0f} MiB at the peak")
    print(", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in sizes.items()))
    result = {
        "runs": runs,
        "generations": generations,
        "seconds": round(seconds, 1),
        "peak_mib": round(peak / unit),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
