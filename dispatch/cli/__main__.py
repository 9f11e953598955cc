"""`python -m dispatch.cli` is the command `dispatch`."""

import sys

from dispatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
