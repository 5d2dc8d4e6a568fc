"""Memory of the device over the planned steps, by torch's own tracker."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.plan import torch_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

#: Categories of memory, in the order of :class:`hpu_sim.plan.recording.MemorySample`.
CATEGORIES: Final = (
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "temporaries",
    "communication buffers",
    "other",
)
# Members of torch's enumeration by category. torch's OTH is free for communication buffers here.
_MEMBERS: Final = {
    "PARAM": 0,
    "BUFFER": 0,
    "GRAD": 1,
    "OPT": 2,
    "ACT": 3,
    "TEMP": 4,
    "OTH": 5,
}


def make_memory_tracker(
    on_change: Callable[[tuple[int, ...]], None], on_root_module: Callable[[torch.nn.Module], None]
) -> Any:
    """Return torch's ``MemTracker`` of the device's memory, which also reports every change.

    Args:
        on_change: Called with the bytes by category after each change.
        on_root_module: Called with every module that runs outside of another one.
    """
    return _tracker_class()(on_change, on_root_module)


class _NoHandle:
    """Handle of a hook that is not registered."""

    def remove(self) -> None:
        """Do nothing."""


@functools.cache
def _tracker_class() -> type[Any]:  # noqa: C901 - the methods of one class
    base, categories, updates = torch_tools.mem_tracker_names()
    index = {categories[name]: position for name, position in _MEMBERS.items()}

    class MemoryTracker(base):  # type: ignore[misc, valid-type] # torch's class is Any here
        """torch's tracker with temporaries of the optimizer, communication buffers, and any number of steps."""

        def __init__(
            self, on_change: Callable[[tuple[int, ...]], None], on_root_module: Callable[[torch.nn.Module], None]
        ) -> None:
            self.in_closure = False
            self._steps_optimizer = False
            super().__init__()
            self._on_change = on_change
            self._on_root_module = on_root_module
            self.bytes = [0] * len(CATEGORIES)

        @property
        def module(self) -> str:
            """Qualified name of the innermost module that runs; empty outside of modules."""
            names = self._mod_tracker.parents
            return "" if len(names) == 1 else max((name for name in names if name != "Global"), key=len)

        # Lightning runs forward and backward in a closure of the optimizer's step.
        @property
        def _in_opt(self) -> bool:
            return self._steps_optimizer and not self.in_closure

        @_in_opt.setter
        def _in_opt(self, value: bool) -> None:
            self._steps_optimizer = value

        @property
        def is_optimizing(self) -> bool:
            """Whether an optimizer steps, outside of its closure."""
            return self._in_opt

        def name_modules(self, root: torch.nn.Module) -> None:
            """Give the modules below a root their qualified names."""
            self._mod_tracker._get_mod_name(root)  # noqa: SLF001 - torch derives names from the first module called

        def mark_communication(self, tensor: torch.Tensor) -> None:
            """Count a tensor as a communication buffer, unless it is a gradient, a parameter or optimizer state."""
            known, _ = self._WINFO.get(tensor.untyped_storage(), (None, None))
            if known is not None and known.reftype in {categories.ACT, categories.TEMP}:
                self._update_and_maybe_create_winfos(tensor, categories.OTH)

        def _update_snap(
            self, kind: Any, info: Any, old_mem_consumed: int | None = None, old_reftype: Any | None = None
        ) -> None:
            if info.device.type != "hpu":
                return
            if kind == updates.ADD and info.reftype == categories.OPT:
                # torch counts all that an optimizer allocates as its state. What stays is marked after its step.
                info.reftype = categories.TEMP
            size, position = info.mem_consumed, index[info.reftype]
            if kind == updates.ADD:
                self.bytes[position] += size
            elif kind == updates.DEL:
                self.bytes[position] -= size
            elif kind == updates.REF:
                self.bytes[index[old_reftype]] -= size
                self.bytes[position] += size
            else:
                self.bytes[position] += size - (old_mem_consumed or 0)
            self._on_change(tuple(self.bytes))

        def _update_peak_stats(self, peak_state: Any) -> None:
            """Do nothing: every change is reported."""

        def _track_module_params_and_buffers(
            self, module: torch.nn.Module, install_grad_hooks: bool = True
        ) -> tuple[int, int]:
            for parameter in module.parameters() if install_grad_hooks else ():
                is_hookable = parameter.requires_grad and parameter.is_leaf
                if not is_hookable and parameter not in self._param_to_grad_hook_handles:
                    # torch registers a hook on every parameter without a handle. Frozen ones refuse it, and so do
                    # those of FSDP, which are views of its flat parameters.
                    self._param_to_grad_hook_handles[parameter] = (_NoHandle(), _NoHandle())
            with warnings.catch_warnings():
                # torch reads the gradient of these views.
                warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
                sizes: tuple[int, int] = super()._track_module_params_and_buffers(module, install_grad_hooks)
            return sizes

        def _pre_fw_hook(self, module: torch.nn.Module, inputs: Any) -> None:
            if not self._mod_tracker.is_bw and len(self._mod_tracker.parents) == 2:  # noqa: PLR2004 - global, and this
                # torch refuses a second call of a root module, which every training loop makes.
                self.reset_mod_stats()
                self._on_root_module(module)
            super()._pre_fw_hook(module, inputs)

        def _post_fw_hook(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
            if module in self.memory_tracking:
                super()._post_fw_hook(module, inputs, outputs)

        def _pre_bw_hook(self, module: torch.nn.Module, args: Any) -> None:
            """Do nothing: every change is reported."""

        def _post_bw_hook(self, module: torch.nn.Module, args: Any) -> None:
            """Do nothing: every change is reported."""

    return MemoryTracker
