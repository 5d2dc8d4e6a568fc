"""Errors of the planner, each with the line of the program and what to do."""

from __future__ import annotations


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


class PlanComplete(BaseException):
    """Signal that ends the program once its steps are recorded; like SystemExit, no program catches it by accident."""
