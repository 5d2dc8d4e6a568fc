"""`python -m hpu_launch`, the command `hpu-launch`."""

from hpu_launch.cli import main

if __name__ == "__main__":
    main(prog_name="hpu-launch")
