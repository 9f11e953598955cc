"""`python -m tests.exhaustive`: explore everything, one line per part; exit 1 on a violation."""

import sys

from tests.exhaustive.campaign import main

if __name__ == "__main__":
    sys.exit(main())
