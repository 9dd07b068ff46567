"""`python -m tests.torture KILLS [SEED [SCENARIO …]]`: so many kills, all findings, a last line of JSON.

With `each` in the place of KILLS: a kill before each rename of the scenarios.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.torture.torture import SCENARIOS, Torturer


def main():
    kills = sys.argv[1] if len(sys.argv) > 1 else "300"
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    print(f"{kills} kills from seed {seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        torturer = Torturer(
            Path(scratch), random.Random(seed), keep=Path(tempfile.gettempdir()) / "torture-findings"
        )
        names = sys.argv[3:] or tuple(SCENARIOS)
        if kills == "each":
            torturer.kill_at_each_rename(names)
        else:
            torturer.torture(int(kills), names)
    for finding in torturer.findings:
        print(finding)
    summary = {
        "kills": sum(torturer.kills.values()),
        "seed": seed,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "by_command": dict(torturer.kills),
        "renames_killed_at": torturer.coverage(),
        "findings": len(torturer.findings),
    }
    print(json.dumps(summary))
    return 1 if torturer.findings else 0


if __name__ == "__main__":
    sys.exit(main())
