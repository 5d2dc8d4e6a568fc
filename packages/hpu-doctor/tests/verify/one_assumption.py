"""An assumption whose program does one thing, and a simulated machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_doctor.verify.assumption import Assumption, SkippedError
from hpu_doctor.verify.runner import Target

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = Target(release="1.24.1", generation="GAUDI2", cards=1, simulated=True)


def make_assumption(program: Callable[[], object] = lambda: 1, **fields: Any) -> Assumption:
    """Return an assumption that 1 is 1, with the fields given."""
    known: dict[str, Any] = {
        "id": "one-is-one",
        "subject": "Numbers",
        "statement": "One is one.",
        "source": "Peano",
        "expected": 1,
        "means": {"hpu-core": "counting would be wrong."},
    }
    return Assumption(program=program, **{**known, **fields})


def skip() -> object:
    """Raise the error of a program that cannot show its assumption."""
    raise SkippedError("the machine has no tail")
