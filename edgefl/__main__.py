"""``python -m edgefl``: the same as the command ``edgefl``."""

import sys

from edgefl.cli import main

if __name__ == "__main__":
    sys.exit(main())
