"""Errors of the planner and of the programs that it runs, each with the line of the program."""

from __future__ import annotations

import itertools
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim.common import frames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class PlanError(RuntimeError):
    """Error for a program that cannot be planned.

    Args:
        problem: What the program does, and what to do instead.
        location: ``file:line`` of the program; empty if unknown.
    """

    def __init__(self, problem: str, location: str = "") -> None:
        super().__init__(f"{location}: {problem}" if location else problem)
        self.problem = problem
        self.location = location

    def __reduce__(self) -> tuple[type[PlanError], tuple[str, str]]:
        """Return what makes an equal error in another process."""
        return type(self), (self.problem, self.location)


class ProgramError(RuntimeError):
    """Error that the program itself raised; its text is the program's part of the traceback."""


class PlanComplete(BaseException):
    """Signal that ends the program once its steps are recorded; like SystemExit, no program catches it by accident."""


def describe(error: BaseException) -> str:
    """Return an error's traceback from the program's first line on; a run of library frames is one line."""
    first = next(frames.program_tracebacks(error.__traceback__), None)
    lines = ["Traceback (most recent call last):\n", *_frames(first)] if first is not None else []
    return "".join([*lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def location_of(error: BaseException) -> str:
    """Return the line of the program that raised an error; empty if none did."""
    parts = list(frames.program_tracebacks(error.__traceback__))
    return f"{parts[-1].tb_frame.f_code.co_filename}:{parts[-1].tb_lineno}" if parts else ""


def _frames(first: TracebackType | None) -> Iterator[str]:
    parts = [first] if first is not None else []
    while parts and parts[-1].tb_next is not None:
        parts.append(parts[-1].tb_next)
    for is_program, group in itertools.groupby(parts, lambda part: frames.is_program(part.tb_frame)):
        run = list(group)
        if is_program:
            for part in run:
                yield from traceback.format_tb(part, limit=1)
            continue
        last = run[-1]
        place = f"{_short(last.tb_frame.f_code.co_filename)}:{last.tb_lineno}, in {last.tb_frame.f_code.co_name}"
        count = f"{len(run)} frames of libraries, the last one" if len(run) > 1 else "a frame of a library"
        yield f"  ... {count} {place}\n"


def _short(file: str) -> str:
    """Return the part of a path that begins with the package's name."""
    parts = Path(file).parts
    installed = [index for index, part in enumerate(parts) if part in {"site-packages", "dist-packages", "src"}]
    return str(Path(*parts[installed[-1] + 1 :])) if installed else file
