"""Processes that record programs: each candidate has one of its own, which is a fork of the planner's.

A program that is run twice in one process meets what its first run left: modules, environments, process groups. The
planner imports the frameworks that the first process imported, so that every further one finds them.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from hpu_sim.plan import errors
from hpu_sim.plan.errors import PlanError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from hpu_sim.plan.options import Options
    from hpu_sim.prediction.recording import Recording

# Packages that take long to import, and do the same whenever they are.
_FRAMEWORKS: Final = frozenset(
    {"accelerate", "deepspeed", "lightning", "peft", "pytorch_lightning", "torch", "torchmetrics", "torchvision",
     "transformers"}
)  # fmt: skip
# Lines of the program's own output that follow an error.
_LINES_SHOWN: Final = 20
# Clears a terminal's line.
_CLEAR: Final = "\r\x1b[K"
# PR_SET_PDEATHSIG of Linux.
_SET_DEATH_SIGNAL: Final = 1


class Worker:
    """Recorder of a program, in one process per call.

    Args:
        program: Python file.
        arguments: Its arguments.
        shows_output: Whether the program's output is shown; else only its last lines, if it fails.
    """

    def __init__(self, program: str, arguments: Sequence[str], *, shows_output: bool = False) -> None:
        self._program = program
        self._arguments = tuple(arguments)
        self._progress = _Progress()
        self._shows_output = shows_output
        self._folders: set[str] = set()
        self._has_imported = False

    def end_progress(self) -> None:
        """Clear the line that says what is planned."""
        self._progress.end()

    def record(self, options: Options) -> Recording:
        """Record the program with options.

        Raises:
            PlanError: If it cannot be planned.
            ProgramError: If it raises an error of its own.
        """
        self._progress.show(options, "starting")
        if not self._has_imported:
            self._has_imported = True
            _import(_frameworks_of(self._program))
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        with tempfile.TemporaryFile() as output:
            process = context.Process(target=self._work, args=(sender, options, output))
            process.start()
            sender.close()
            kind, value = self._receive(receiver, options)
            process.join()
            if kind == "recording":
                recording: Recording = value
                return recording
            if kind == "error":
                raise value
            # The program's own output says why it ended.
            ended = f"the process of the program ended with exit code {process.exitcode}"
            raise PlanError((value or ended) + _last_lines(output))

    def _receive(self, receiver: Connection, options: Options) -> tuple[str, Any]:
        """Return how a process ended: a recording, an error, or the exit of its program."""
        take: dict[str, Callable[[Any], None]] = {
            "progress": functools.partial(self._progress.show, options),
            "folder": self._folders.add,
            "imported": _import,
        }
        with contextlib.suppress(EOFError):
            while True:
                kind, value = receiver.recv()
                if kind not in take:
                    return kind, value
                take[kind](value)
        return "exit", ""

    def _work(self, sender: Connection, options: Options, output: IO[bytes]) -> None:
        """Record in this process, and send what happens."""
        import torch

        from hpu_sim.plan.execution import record

        _end_with_parent()
        # The first use of torch's pool of threads after a fork replaces it. Two threads of autograd that are the first
        # at the same time end the process (torch 2.13).
        torch.set_num_threads(torch.get_num_threads())
        # What the planner has made is looked at by no collection of the program's.
        gc.freeze()
        if not self._shows_output:
            sys.stdout.flush()
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            sys.stdout = sys.stderr = os.fdopen(os.dup(output.fileno()), "w")
        end: tuple[str, Any]
        try:
            self._keep_folders(sender)
            recording = record(
                self._program,
                self._arguments,
                options,
                on_progress=lambda text: sender.send(("progress", text)),
            )
            end = "recording", recording
        except PlanError as error:
            end = ("exit", str(error)) if isinstance(error.__cause__, SystemExit) else ("error", error)
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            end = "error", ProgramError(errors.describe(error))
        sys.stdout.flush()
        sys.stderr.flush()
        sender.send(("imported", [name for name in sys.modules if name.partition(".")[0] in _FRAMEWORKS]))
        sender.send(end)
        sender.close()

    def _keep_folders(self, sender: Connection) -> None:
        """Let the program make a folder that an earlier candidate made."""
        make, process = os.mkdir, os.getpid()

        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            made = str(Path(os.fsdecode(path)).absolute())
            if made in self._folders and Path(made).is_dir():
                return
            make(path, *args, **kwargs)
            if os.getpid() == process:  # Not a worker of its DataLoader.
                sender.send(("folder", made))

        os.mkdir = mkdir


class _Progress:
    """Progress on stderr: a line that changes on a terminal, and a line per candidate elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._candidate: Options | None = None

    def show(self, options: Options, doing: str) -> None:
        """Show what the process of a candidate does."""
        is_new = options != self._candidate
        self._candidate = options
        if not self._is_terminal and not is_new:
            return
        changed = "".join(f", {each}" for each in (options.strategy, options.changes) if each)
        seconds = time.monotonic() - self._start
        line = f"planning rank {options.rank} of {options.world_size}{changed}: {doing} ({seconds:.0f} s)"
        sys.stderr.write(f"{_CLEAR}{line}" if self._is_terminal else f"{line}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._is_terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def _frameworks_of(program: str) -> list[str]:
    """Return the frameworks that a program imports in its first lines, so that they are imported once."""
    try:
        body = ast.parse(Path(program).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []  # The program's process says so.
    names = [each.module or "" for each in body if isinstance(each, ast.ImportFrom) and not each.level]
    names += [alias.name for each in body if isinstance(each, ast.Import) for alias in each.names]
    return [name for name in names if name.partition(".")[0] in _FRAMEWORKS]


def _import(names: Sequence[str]) -> None:
    """Import modules of frameworks, in the order in which a program did."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules:
                # Some names stand for no module, and some modules need what the program did before.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def _end_with_parent() -> None:
    """Have the kernel end this process when the planner's ends, however it does."""
    library = ctypes.CDLL(None)
    library.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _last_lines(output: IO[bytes]) -> str:
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
    return "".join(f"\n  | {line}" for line in lines)
