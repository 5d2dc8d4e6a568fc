"""Errors of the planner and of the programs that it runs, each with the line of the program."""

from __future__ import annotations

import traceback

from hpu_sim.common import frames


class PlanError(RuntimeError):
    """Error for a program that cannot be planned.

    Args:
        problem: What the program does, and what to do instead.
        location: ``file:line`` of the program; empty if unknown.
    """

    def __init__(self, problem: str, location: str = "") -> None:
        super().__init__(f"{location}: {problem}" if location else problem)


class PlanComplete(BaseException):
    """Signal that ends the program once its steps are recorded; like SystemExit, no program catches it by accident."""


def describe(error: BaseException) -> str:
    """Return an error with the lines of the program in its traceback; those of libraries are left out."""
    parts = list(frames.program_tracebacks(error.__traceback__))
    lines = [line for part in parts for line in traceback.format_tb(part, limit=1)]
    head = ["Traceback (most recent call last):\n"] if lines else []
    return "".join([*head, *lines, *traceback.format_exception_only(type(error), error)]).rstrip()


def location_of(error: BaseException) -> str:
    """Return the line of the program that raised an error; empty if none did."""
    parts = list(frames.program_tracebacks(error.__traceback__))
    return f"{parts[-1].tb_frame.f_code.co_filename}:{parts[-1].tb_lineno}" if parts else ""
