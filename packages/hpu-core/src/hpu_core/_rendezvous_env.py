"""Default MASTER_ADDR and MASTER_PORT that the bridge's import sets, and their removal.

The import sets both to a fixed endpoint where they are unset, and all jobs of a machine would share one port. Only
variables that the bridge set may be removed, and the user may set the same values. `os.environ` keeps each value as the
bytes object of its last assignment, so the identity of that object shows who assigned it last.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from _hpu_core_probe import BRIDGE
from hpu_core.import_hooks import ImportHook

_DEFAULTS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}

# What the import sets for a rank as well, which `hccl` restores.
_OF_RANK: Final = ("HLS_MODULE_ID", "ID")

# The bridge's import sets this variable before the two above, and `os.environ` keeps the order of first assignments.
_SET_FIRST = "TORCHINDUCTOR_COMPILE_THREADS"

# Launchers set one of these with an endpoint of their own.
_RANKS = ("GROUP_RANK", "LOCAL_RANK", "NODE_RANK", "RANK")

# Stored values of the variables that the bridge set.
_bridge_values: dict[str, object] = {}


class _RendezvousHook(ImportHook):
    """Import hook that records which variables the bridge's import sets."""

    # hpu-doctor verify: rank-selects-module

    def execute(self, module: ModuleType, exec_module: Callable[[ModuleType], object]) -> None:
        """Run a module and record the variables that it sets."""
        before = {name: _stored(name) for name in (*_DEFAULTS, *_OF_RANK)}
        try:
            exec_module(module)
        finally:
            _bridge_values.update((name, _stored(name)) for name in before if _stored(name) is not before[name])


_hook: Final = _RendezvousHook({BRIDGE, f"{BRIDGE}.distributed.hccl"})


def track() -> None:
    """Record whether the bridge's import sets the variables when other code imports it.

    Runs during `import torch`, which imports the bridge in eager mode, before or after this.
    """
    # importlib's own marker of a module whose code is still running.
    is_importing_torch = getattr(getattr(sys.modules.get("torch"), "__spec__", None), "_initializing", False)
    if sys.modules.get(BRIDGE) is not None and is_importing_torch:
        record_past_import()
    _hook.install()


def record_past_import() -> None:
    """Record the defaults of a bridge that torch imported before hpu_core, as far as the bridge set them.

    Call it during `import torch`, before the program continues. Variables that were assigned earlier than the bridge's
    first one, or that the process inherited, are the user's.
    """
    names, inherited = list(os.environ), _inherited_names()
    if _SET_FIRST not in names or inherited is None or _SET_FIRST in inherited:
        return
    for name in names[names.index(_SET_FIRST) :]:
        if name in _OF_RANK or os.environ[name] == _DEFAULTS.get(name):
            _bridge_values[name] = _stored(name)


def clear() -> None:
    """Remove the variables that the bridge set, here or in a parent, unless another value was assigned since.

    What a process inherits is a parent's bridge's if it has all three variables of its import and no launcher's. The
    variables of a bridge whose import `track` has not seen stay.
    """
    if _has_inherited_defaults():
        _bridge_values.update({name: _stored(name) for name in _DEFAULTS})
    for name in _DEFAULTS:
        if is_of_bridge(name):
            del os.environ[name]
        _bridge_values.pop(name, None)


def is_of_bridge(name: str) -> bool:
    """Return whether the bridge's import has set the value of a variable, as far as `track` has seen it."""
    return name in _bridge_values and _stored(name) is _bridge_values[name]


@contextlib.contextmanager
def preserve() -> Iterator[None]:
    """Restore the variables after the body."""
    before = {name: os.environ.get(name) for name in _DEFAULTS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            elif os.environ.get(name) != value:
                os.environ[name] = value


def _stored(name: str) -> object:
    """Return the object in which `os.environ` keeps a variable, None if it is not set."""
    stored: dict[object, object] = vars(os.environ).get("_data", {})
    return stored.get(os.environ.encodekey(name))


def _has_inherited_defaults() -> bool:
    if not _DEFAULTS.items() <= os.environ.items() or not os.environ.keys().isdisjoint(_RANKS):
        return False
    inherited = _inherited_names()
    return inherited is not None and inherited >= {_SET_FIRST, *_DEFAULTS}


def _inherited_names() -> frozenset[str] | None:
    """Return the names of the variables that this process inherited, None if the system does not list them."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    return frozenset(os.fsdecode(entry.partition(b"=")[0]) for entry in block.split(b"\0"))
