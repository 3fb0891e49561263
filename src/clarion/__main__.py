"""`python -m clarion` is the `clarion` command."""

import sys

from clarion.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
