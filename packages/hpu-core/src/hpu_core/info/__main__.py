"""`python -m hpu_core.info`, the command `hpu-info`."""

from hpu_core.info import main

if __name__ == "__main__":
    main()
