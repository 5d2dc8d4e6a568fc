"""The assumptions about cards, by subject: one module each.

An entry is a function with the decorator `assume` in the module of its subject. The documentation lists them
all. tests/verify/mutations.py changes the behavior that an entry shows, and must make it fail.
"""

import functools

from hpu_doctor.verify.assumption import Assumption
from hpu_doctor.verify.register import (
    attention,
    autocast,
    calls,
    compilation,
    cpu_fallback,
    devices,
    discovery,
    dtypes,
    engines,
    graphs,
    hccl,
    loading,
    memory,
    metrics,
    points,
    profiler,
    random_numbers,
    views,
)

# In the order of a run: what needs no card first, times last.
_SUBJECTS = (
    loading.SUBJECT,
    calls.SUBJECT,
    discovery.SUBJECT,
    devices.SUBJECT,
    memory.SUBJECT,
    dtypes.SUBJECT,
    views.SUBJECT,
    random_numbers.SUBJECT,
    cpu_fallback.SUBJECT,
    metrics.SUBJECT,
    autocast.SUBJECT,
    attention.SUBJECT,
    graphs.SUBJECT,
    compilation.SUBJECT,
    profiler.SUBJECT,
    engines.SUBJECT,
    hccl.SUBJECT,
    points.SUBJECT,
)


@functools.cache
def assumptions() -> tuple[Assumption, ...]:
    """Return all assumptions, in the order of a run."""
    return tuple(assumption for subject in _SUBJECTS for assumption in subject)


def find(name: str) -> Assumption:
    """Return an assumption by its id.

    Raises:
        KeyError: There is none.
    """
    return {assumption.id: assumption for assumption in assumptions()}[name]
