"""``torch.compile`` on hpu: ``backend="hpu_backend"``, in eager mode only."""

import importlib
from typing import Any, Final

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.import_hooks import after_import

# Where torch asks, by release, what the strides of a result will be.
_TRACING: Final = ("torch._refs", "torch._subclasses.fake_impls", "torch._subclasses.fake_tensor")


def register_when_imported() -> None:
    """Register the backend with dynamo once a program imports it: most do not, and it takes seconds."""
    after_import("torch._dynamo", _register)


def _register() -> None:
    _trace_strides()
    if is_lazy():
        return
    from habana_frameworks.torch.dynamo import device_interface
    from habana_frameworks.torch.dynamo.compile_backend import backends

    device_interface.register()
    backends.register()


def _trace_strides() -> None:
    """Let torch trace the strides that results have here, which are the CPU's.

    It takes the results of element-wise operators on hpu for contiguous, as a card's are, and a graph made with other
    strides than those at run time fails at a ``view``.
    """
    for name in _TRACING:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:  # another release
            continue
        if hasattr(module, "is_noncontiguous_supported"):
            vars(module).update(is_noncontiguous_supported=_keeps_strides)


def _keeps_strides(_device: Any) -> bool:
    return True
