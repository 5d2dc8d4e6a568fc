"""Processes that record programs: each candidate has one of its own, which is a fork of the planner's.

A program that is run twice in one process meets what its first run left: modules, environments, process groups. The
planner imports the frameworks that the first process imported, so that every further one finds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from typing import IO, TYPE_CHECKING, Final

from hpu_sim.plan import errors
from hpu_sim.plan.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
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
        self._shows_output = shows_output

    def record(self, options: Options) -> Recording:
        """Record the program with options.

        Raises:
            PlanError: If it cannot be planned, or raises an error of its own.
        """
        changed = "".join(f", {each}" for each in (options.strategy, options.changes) if each)
        sys.stderr.write(f"planning rank 0 of {options.world_size}{changed}\n")
        sys.stderr.flush()
        context = multiprocessing.get_context("fork")
        reader, writer = context.Pipe(duplex=False)
        with tempfile.TemporaryFile() as output:
            process = context.Process(target=self._work, args=(writer, options, output))
            process.start()
            writer.close()
            end: Recording | PlanError | None = None
            with contextlib.suppress(EOFError):
                names, end = reader.recv()
                _import(names)
            process.join()
            # The program's own output says why it ended.
            reason = f"the process of the program ended with exit code {process.exitcode}"
            end = end or PlanError(reason + _last_lines(output))
        if isinstance(end, PlanError):
            raise end
        return end

    def _work(self, writer: Connection, options: Options, output: IO[bytes]) -> None:
        """Record in this process; send the names of imported frameworks, and a recording or an error."""
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
        end: Recording | PlanError
        try:
            end = record(self._program, self._arguments, options)
        except PlanError as error:
            end = PlanError(str(error) + _last_lines(output)) if isinstance(error.__cause__, SystemExit) else error
        except Exception as error:  # noqa: BLE001 - neither a full disk nor a bug in here may stop the program
            before = "the program itself failed, before its training steps were known"
            end = PlanError(f"{before}:\n{errors.describe(error)}")
        sys.stdout.flush()
        writer.send(([name for name in sys.modules if name.partition(".")[0] in _FRAMEWORKS], end))
        writer.close()


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
    sys.stderr.flush()
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
    return "".join(f"\n  | {line}" for line in lines)
