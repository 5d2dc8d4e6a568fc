"""`python -m hpu_core.info`, the command `hpu-info` for processes that it starts itself."""

from hpu_core.info import main

if __name__ == "__main__":
    main(prog_name="hpu-info")
