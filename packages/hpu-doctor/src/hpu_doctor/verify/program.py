"""The process of a program, started by `runner`: `python -m hpu_doctor.verify.program`.

It loads the bridge, waits for a request, a line of JSON on stdin, and writes what the program returned to a folder.
With `--fork` it answers any number of requests, each by forked processes, one per rank, as the simulator allows it.

A program works in a scratch folder. Files that it leaves in the subfolder `ATTACHMENTS` become part of the report.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hpu_core import bridge
from hpu_doctor.verify import register, supervision
from hpu_doctor.verify.assumption import Assumption, NotTriedError, error_of
from hpu_doctor.verify.supervision import Limits

ATTACHMENTS: Final = "attachments"

_STDOUT: Final = 1
_STDERR: Final = 2
_LEAVE_SECONDS: Final = 20


def result_file(folder: Path, rank: int) -> Path:
    """Return the file for the result of a rank."""
    return folder / f"result-{rank}.json"


def output_file(folder: Path, rank: int) -> Path:
    """Return the file for what a rank prints."""
    return folder / f"output-{rank}.txt"


def main(arguments: list[str]) -> None:
    """Run one program, or serve."""
    if arguments == ["--fork"]:
        serve()
        return
    supervision.bound_files()
    # What loading costs is not the program's.
    with contextlib.suppress(ImportError):
        bridge.load()
    # The end of the input without a line is that of `runner`.
    line = sys.stdin.readline()
    request = json.loads(line) if line else {}
    if not request or not run(register.find(request["id"]), Path(request["folder"])):
        sys.exit(1)


def serve(before: Callable[[], object] = lambda: None) -> None:
    """Answer each request by a line on stdout: how the processes ended, or null.

    Args:
        before: Called in each forked process, before the program.
    """
    # A signal that ends this process ends the programs as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    answers = os.fdopen(os.dup(_STDOUT), "w", encoding="utf-8")
    os.dup2(_STDERR, _STDOUT)
    bridge.load()
    for line in sys.stdin:
        request = json.loads(line)
        assumption, folder = register.find(request["id"]), Path(request["folder"])
        # All pids before the first wait, so that ranks run together.
        pids = [_fork(assumption, folder, rank, own, before) for rank, own in enumerate(request["ranks"])]
        answers.write(json.dumps(supervision.wait(pids, Limits(assumption.seconds))) + "\n")
        answers.flush()


def run(assumption: Assumption, folder: Path) -> bool:
    """Run a program and write its result, unless this process ends in it.

    Returns:
        Whether it has a result: False for an error, in a job of several ranks that of one rank.
    """
    result: dict[str, Any]
    (folder / ATTACHMENTS).mkdir(exist_ok=True)
    os.chdir(folder)
    try:
        result = {"seen": json.loads(json.dumps(assumption.program(), default=str))}
    except NotTriedError as reason:
        result = {"not_tried": str(reason)}
    except Exception as error:  # noqa: BLE001 - an error is a result as well.
        result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    file = result_file(folder, int(os.environ.get("RANK", "0")))
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


def _fork(
    assumption: Assumption, folder: Path, rank: int, variables: Mapping[str, str], before: Callable[[], object]
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        supervision.bound_files()
        os.environ.update(variables)
        with output_file(folder, rank).open("wb") as output:
            for stream in (_STDOUT, _STDERR):
                os.dup2(output.fileno(), stream)
        before()
        code = 0 if run(assumption, folder) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # The server's own clean-up is not this process's.
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
