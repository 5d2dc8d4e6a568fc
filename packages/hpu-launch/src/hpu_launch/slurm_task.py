"""`python -m hpu_launch.slurm_task SCRIPT`: run a script as a rank on a machine that does not isolate devices.

Each task of a SLURM step takes a module that no other process holds, and keeps it until it exits. The tasks of a
machine tell each other their modules by files, because HABANA_VISIBLE_MODULES lists those of all local ranks.
"""

import contextlib
import errno
import os
import runpy
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hpu_launch.module_locks import free_modules

# How long the tasks of a machine may start after each other.
_TIMEOUT: Final = 120.0
_POLL_INTERVAL: Final = 0.1


def share_modules(
    folder: Path, local_rank: int, local_size: int, take: Callable[[int], tuple[int, ...]] = free_modules
) -> str:
    """Take a free module, and return the modules of all tasks of this machine by local rank.

    Args:
        folder: Folder of this step on this machine.
        local_rank: This task among those of the machine.
        local_size: Number of tasks of the machine.
        take: Takes modules until this process exits.

    Raises:
        PermissionError: The folder is another user's, or others can write to it.
        RuntimeError: There is no free module.
        TimeoutError: Another task has not taken one in time.
    """
    _create(folder)
    (module,) = take(1)
    own = folder / f"{local_rank}.new"
    own.write_text(str(module), encoding="ascii")
    # Rename, so readers never see a partial file.
    own.rename(folder / str(local_rank))
    files = [folder / str(rank) for rank in range(local_size)]
    deadline = time.monotonic() + _TIMEOUT
    while missing := [file.name for file in files if not file.exists()]:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"local ranks {', '.join(missing)} took no module within {_TIMEOUT:g} s; see their output"
            )
        time.sleep(_POLL_INTERVAL)
    return ",".join(file.read_text(encoding="ascii") for file in files)


def _create(folder: Path) -> None:
    """Create the folder, or take it if it is this user's own: its name is known, and /tmp is for all users."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    # Of a link itself. A folder of this user in /tmp cannot be replaced by others, as the sticky bit keeps them off.
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(
            errno.EPERM,
            "the folder by which the tasks of a step tell each other their cards must be of this user alone; remove "
            "it, or set TMPDIR to a folder of your own",
            str(folder),
        )


def step_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a SLURM step on this machine, another one after each requeue."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    step = "-".join(environ.get(name, "0") for name in names)
    return Path(tempfile.gettempdir()) / f"hpu-modules-{os.getuid()}-{step}"


def main() -> None:
    """Set HABANA_VISIBLE_MODULES, and run the script in this process, which holds the lock of its module."""
    # "4(x2),3" for machines with different numbers of tasks does not occur: hpu-launch asks for the same on each.
    local_size = int(os.environ["SLURM_NTASKS_PER_NODE"])
    modules = share_modules(step_folder(), int(os.environ["SLURM_LOCALID"]), local_size)
    os.environ["HABANA_VISIBLE_MODULES"] = modules
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
