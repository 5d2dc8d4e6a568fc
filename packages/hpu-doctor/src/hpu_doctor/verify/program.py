"""The process of one program, started by `runner`: `python -m hpu_doctor.verify.program ID FOLDER`.

It loads the bridge, waits for a line on stdin, and writes what the program returned to FOLDER. Without arguments, it
serves instead: it loads the bridge once and forks a process per program, which the simulator allows.

A program works in a scratch folder. Files that it leaves in the subfolder `ATTACHMENTS` become part of the report.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from hpu_core import bridge
from hpu_doctor.verify import register, supervision
from hpu_doctor.verify.assumption import Assumption, NotTriedError
from hpu_doctor.verify.supervision import Limits

ATTACHMENTS: Final = "attachments"

_STDOUT: Final = 1
_STDERR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program to run in forked processes.

    Attributes:
        id: Id of the assumption.
        folder: Scratch folder.
        ranks: Environment variables of each rank.
    """

    id: str
    folder: str
    ranks: tuple[Mapping[str, str], ...]


def result_file(folder: Path, rank: int) -> Path:
    """Return the file for the result of a rank."""
    return folder / f"result-{rank}.json"


def output_file(folder: Path, rank: int) -> Path:
    """Return the file for what a rank prints."""
    return folder / f"output-{rank}.txt"


def main(arguments: list[str]) -> None:
    """Run one program, or serve."""
    if not arguments:
        serve()
        return
    assumption = register.find(arguments[0])
    supervision.bound_files()
    folder = Path(arguments[1])
    # What loading costs is not the program's.
    with contextlib.suppress(ImportError):
        bridge.load()
    # The end of the input without a line is that of `runner`.
    if not sys.stdin.readline() or not run(assumption, folder):
        sys.exit(1)


def serve(before: Callable[[str], object] | None = None) -> None:
    """Answer each `Request` on stdin, a line of JSON, by a line on stdout: how the processes ended, or null.

    Args:
        before: Called in each forked process with the id, before the program.
    """
    # A signal that ends this process ends the programs as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    answers = os.fdopen(os.dup(_STDOUT), "w", encoding="utf-8")
    os.dup2(_STDERR, _STDOUT)
    bridge.load()
    for request in _requests(sys.stdin):
        assumption = register.find(request.id)
        # A tuple of pids before the first wait, so that ranks run together.
        pids = [_fork(assumption, request, rank, before) for rank in range(len(request.ranks))]
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
    return "error" not in result


def _requests(stream: IO[str]) -> Iterator[Request]:
    for line in stream:
        values = json.loads(line)
        yield Request(id=values["id"], folder=values["folder"], ranks=tuple(values["ranks"]))


def _fork(assumption: Assumption, request: Request, rank: int, before: Callable[[str], object] | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        supervision.bound_files()
        os.environ.update(request.ranks[rank])
        folder = Path(request.folder)
        _redirect_output(output_file(folder, rank))
        if before is not None:
            before(request.id)
        code = 0 if run(assumption, folder) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # The server's own clean-up is not this process's.
        os._exit(code)


def _redirect_output(file: Path) -> None:
    with file.open("wb") as output:
        for stream in (_STDOUT, _STDERR):
            os.dup2(output.fileno(), stream)


if __name__ == "__main__":
    main(sys.argv[1:])
