"""The assumptions about cards, by subject.

An entry is a function with the decorator `assume`, or a `table` of cases, in the module of its subject; what only says
that a name of the bridge exists is a row of the one in `calls`. The documentation lists them all.
"""

import functools

from hpu_doctor.verify.assumption import Assumption
from hpu_doctor.verify.register import (
    calls,
    devices,
    hccl,
    loading,
    media,
    memory,
    modes,
    precision,
    tensors,
)

_SUBJECTS = (
    loading.SUBJECT,
    calls.SUBJECT,
    devices.SUBJECT,
    memory.SUBJECT,
    tensors.DTYPES,
    tensors.RANDOM,
    tensors.FALLBACK,
    modes.METRICS,
    precision.AUTOCAST,
    precision.ATTENTION,
    precision.ENGINES,
    media.SUBJECT,
    modes.GRAPHS,
    modes.COMPILE,
    hccl.SUBJECT,
)


@functools.cache
def assumptions() -> tuple[Assumption, ...]:
    """Return all assumptions."""
    return tuple(assumption for subject in _SUBJECTS for assumption in subject)


def find(name: str) -> Assumption:
    """Return an assumption by its id.

    Raises:
        KeyError: There is none.
    """
    return {assumption.id: assumption for assumption in assumptions()}[name]
