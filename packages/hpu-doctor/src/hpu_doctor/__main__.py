"""`python -m hpu_doctor`, the command `hpu-doctor`, also for processes that it starts itself."""

from hpu_doctor.cli import main

if __name__ == "__main__":
    main(prog_name="hpu-doctor")
