"""`python -m elites` is the command `elites`."""

import sys

from elites.cli import main

if __name__ == "__main__":
    sys.exit(main())
