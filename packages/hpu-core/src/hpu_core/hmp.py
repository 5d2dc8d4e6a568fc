"""HMP, the mixed precision of SynapseAI up to 1.12. Delete this module when 1.13 is the oldest supported release."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType

from hpu_core import bridge


class _State:
    """State of this process."""

    # The module, once its casts are set up.
    hmp: ModuleType | None = None
    # HMP's context manager that disables casts, while it is entered.
    disabled: AbstractContextManager[None] | None = None


def load_hmp() -> ModuleType | None:
    """Import HMP; return None if the bridge has none. Opens no device.

    The import has no effect on the process; HMP's `convert` has.
    """
    with warnings.catch_warnings():
        # HMP warns about its own removal, which callers handle.
        warnings.simplefilter("ignore")
        return bridge.optional_module("hpex.hmp")


def is_casting() -> bool:
    """Return whether HMP casts now."""
    return _State.hmp is not None and _State.disabled is None


def disable(hmp: ModuleType) -> None:
    """Disable the casts, which HMP's `convert` has enabled in the whole process."""
    _State.hmp, _State.disabled = hmp, hmp.disable_casts()
    _State.disabled.__enter__()


@contextmanager
def casts(*, enabled: bool) -> Iterator[None]:
    """Enable or disable HMP's casts inside the context and restore the previous state afterwards."""
    previous = is_casting()
    _set_enabled(enabled=enabled)
    try:
        yield
    finally:
        _set_enabled(enabled=previous)


def _set_enabled(*, enabled: bool) -> None:
    if enabled and _State.disabled is not None:
        # Always exited without an exception, after which HMP would keep casts disabled.
        _State.disabled.__exit__(None, None, None)
        _State.disabled = None
    elif not enabled and _State.hmp is not None and _State.disabled is None:
        disable(_State.hmp)
