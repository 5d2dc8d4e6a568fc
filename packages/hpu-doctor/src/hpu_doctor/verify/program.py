"""The process of a program, started by `runner`: `python -m hpu_doctor.verify.program ID`.

It loads the bridge, runs the program of an assumption, and writes what that returned to its working directory.
"""

import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

from hpu_core import bridge
from hpu_doctor.verify import register
from hpu_doctor.verify.assumption import Assumption, SkippedError, error_of

_LEAVE_SECONDS: Final = 20


def result_file(folder: Path, rank: int) -> Path:
    """Return the file for the result of a rank."""
    return folder / f"result-{rank}.json"


def run(assumption: Assumption) -> bool:
    """Run a program in the working directory and write its result there, unless this process ends in it.

    Returns:
        Whether it has a result: False for an error, in a job of several ranks that of one rank.
    """
    result: dict[str, Any]
    file = result_file(Path.cwd(), int(os.environ.get("RANK", "0")))
    try:
        result = {"seen": json.loads(json.dumps(assumption.program(), default=str))}
    except SkippedError as reason:
        result = {"not_tried": str(reason)}
    except Exception as error:  # noqa: BLE001 - an error is a result as well.
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    file.write_text(json.dumps(result), encoding="utf-8")
    if assumption.ranks:
        error_of(_leave)
    return "error" not in result


def _leave() -> None:
    """Have rank 0, which has the store of the job, wait for the others, which may still need it."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it.
    left = store.add("verify-left", 1)
    deadline = time.monotonic() + _LEAVE_SECONDS
    while dist.get_rank() == 0 and left < dist.get_world_size() and time.monotonic() < deadline:
        time.sleep(0.02)
        left = store.add("verify-left", 0)


def main() -> int:
    """Run one program, and return the exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ImportError):
        bridge.load()
    return 0 if run(register.find(sys.argv[1])) else 1


if __name__ == "__main__":
    sys.exit(main())
