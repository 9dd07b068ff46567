"""Environment steps per second of a Gymnasium task: see `shared/environments.py`.

    python benchmarks/gymnasium.py [--quick]

This file has the name of the package that it measures, and Python looks for modules in a script's folder
first: that folder goes to the end before anything is imported.
"""

import sys

sys.path.append(sys.path.pop(0))

from shared.environments import main

if __name__ == "__main__":
    main()
