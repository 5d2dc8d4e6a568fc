"""`python -m hpu_export`, the command `hpu-export`."""

import sys

from hpu_export.cli import main

if __name__ == "__main__":
    sys.exit(main())
