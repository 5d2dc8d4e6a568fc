"""Support of ``torch.compile(backend="hpu_backend")``, in eager mode only."""

import importlib
from typing import Any, Final

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.common.post_import import after_import
from hpu_sim.device.runtime import active_config

# Modules of torch, by release, that predict the strides of a result.
_STRIDE_MODULES: Final = ("torch._refs", "torch._subclasses.fake_impls", "torch._subclasses.fake_tensor")


def register_after_import() -> None:
    """Register the backend once a program imports dynamo, which takes seconds and which most programs never do."""
    after_import("torch._dynamo", _register)


def _register() -> None:
    if not active_config().strict:
        _preserve_strides()
    if is_lazy():
        return
    from habana_frameworks.torch.dynamo import device_interface
    from habana_frameworks.torch.dynamo.compile_backend import backends

    device_interface.register()
    backends.register()


def _preserve_strides() -> None:
    """Make torch trace results with the strides that they have here, which are the CPU's.

    torch assumes that element-wise operators on hpu return contiguous results, as on a card. A graph traced with wrong
    strides fails at a ``view``.
    """
    for name in _STRIDE_MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:  # in another release of torch
            continue
        if hasattr(module, "is_noncontiguous_supported"):
            vars(module).update(is_noncontiguous_supported=_supports_noncontiguous)


def _supports_noncontiguous(_device: Any) -> bool:
    return True
