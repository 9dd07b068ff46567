"""Environment steps per second of a Gymnasium task: see `shared/environments.py`.

    python benchmarks/gymnasium.py [--quick]

This file has the name of the package that it measures, and Python looks for modules in a script's folder
first. So that folder goes to the end; other benchmarks, whose imports find this file, get the package,
or hear that it is not there.
"""

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
elsewhere = [entry for entry in sys.path if Path(entry).resolve() != HERE]

if __name__ == "__main__":
    sys.path = [*elsewhere, str(HERE)]
    from shared.environments import main

    main()
else:
    del sys.modules[__name__]
    everywhere, sys.path = sys.path, elsewhere
    try:
        sys.modules[__name__] = importlib.import_module(__name__)
    finally:
        sys.path = everywhere
