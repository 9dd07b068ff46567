"""`python -m tests.fuzz CASES [SEED]`: so many cases, all findings, and a last line of JSON."""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.explore import explore, make_fuzzer


def main():
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    print(f"{cases} cases from seed {seed}: python -m tests.fuzz {cases} {seed} repeats them", flush=True)
    sys.stdout.reconfigure(errors="backslashreplace")  # for arguments that are not UTF-8
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as scratch,
        (Path(tempfile.gettempdir()) / "fuzz.log").open("w", errors="backslashreplace") as log,
    ):
        print(f"every case is in {log.name}", flush=True)
        fuzzer = make_fuzzer(Path(scratch), Path(tempfile.gettempdir()) / "fuzz-findings")
        fuzzer.log = log
        try:
            explore(fuzzer, cases, seed)
        finally:
            fuzzer.close()
    print(fuzzer.report())
    summary = {
        "cases": fuzzer.cases,
        "seed": seed,
        "refused": fuzzer.refused,
        "interrupted": fuzzer.interrupted,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "slowest_s": fuzzer.slowest[-1][0],
        "findings": {cause: finding.count for cause, finding in fuzzer.findings.items()},
    }
    print(json.dumps(summary))
    return 1 if fuzzer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
