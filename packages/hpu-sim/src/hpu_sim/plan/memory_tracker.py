"""Memory of the device over the planned steps, by torch's own tracker."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Final, Protocol

from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.recording import CATEGORIES

if TYPE_CHECKING:
    import torch

    from hpu_sim.prediction.recording import StepRecording

    _MemTracker = Any
else:
    # Torch before `MINIMUM_TORCH` has no tracker, and doctests import every module.
    _MemTracker = object

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

#: Bytes by module and category. Empty is the name of what no module made.
ByModule = dict[tuple[str, int], int]


class MemoryObserver(Protocol):
    """Observer of the device's memory.

    Attributes:
        step: Step whose memory is recorded.
    """

    step: StepRecording

    def before_change(self, *, shrinks: bool) -> None:
        """Prepare for a change."""

    def after_change(self, by_category: tuple[int, ...]) -> None:
        """Take the bytes by category after a change."""

    def on_root_module(self, module: torch.nn.Module) -> None:
        """Take a module that runs outside of another one."""


@functools.cache
def memory_tracker_class() -> type[Any]:
    """Return torch's ``MemTracker`` for the device's memory; it reports every change to its :class:`MemoryObserver`."""
    base, _, _ = torch_tools.mem_tracker_names()
    return type("MemoryTracker", (_MemoryTrackerMixin, base), {})


def _local(tensor: Any) -> Any:
    """Return this rank's part of a DTensor, or the tensor."""
    return getattr(tensor, "_local_tensor", tensor)


class _NoHandle:
    """Handle of a hook that is not registered."""

    def remove(self) -> None:
        """Do nothing."""


class _MemoryTrackerMixin(_MemTracker):  # type: ignore[misc] # torch's class is Any here
    """torch's tracker with temporaries of the optimizer, communication buffers, and any number of steps."""

    def __init__(self, observer: MemoryObserver) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        _, self._categories, self._updates = torch_tools.mem_tracker_names()
        self._positions = {self._categories[name]: position for name, position in _MEMBERS.items()}
        self.in_closure = False
        self._steps_optimizer = False
        self._kind: Any = None
        # Sample before which state of the optimizer was allocated, its module, and its size.
        self._new_states: list[tuple[int, str, int]] = []
        super().__init__()
        self._observer = observer
        self.bytes = [0] * len(CATEGORIES)
        self.by_module: ByModule = {}
        self._owners: Any = WeakIdKeyDictionary()
        self._mod_tracker = torch_tools.module_tracker_class()()

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
        if known is not None and known.reftype in {self._categories.ACT, self._categories.TEMP}:
            self._update_and_maybe_create_winfos(tensor, self._categories.OTH)

    def _update_snap(
        self, kind: Any, info: Any, old_mem_consumed: int | None = None, old_reftype: Any | None = None
    ) -> None:
        if info.device.type != "hpu":
            return
        if kind == self._updates.ADD and info.reftype == self._categories.OPT:
            # torch counts all that an optimizer allocates as its state. What stays is marked after its step.
            info.reftype = self._categories.TEMP
            info.created = len(self._observer.step.samples)
        size, position = info.mem_consumed, self._positions[info.reftype]
        change = {self._updates.DEL: -size, self._updates.REF: 0}.get(kind, size - (old_mem_consumed or 0))
        self._observer.before_change(shrinks=change < 0)
        if not hasattr(info, "module"):
            # Also for storage that was empty so far, of which torch reports no addition.
            info.module = self.module
        if kind == self._updates.REF:
            self._count(info.module, self._positions[old_reftype], -size)
            change = size
            if info.reftype == self._categories.OPT and hasattr(info, "created"):
                self._new_states.append((info.created, info.module, size))
        self._count(info.module, position, change)
        self._observer.after_change(tuple(self.bytes))

    def _count(self, module: str, position: int, size: int) -> None:
        self.bytes[position] += size
        left = self.by_module.get((module, position), 0) + size
        if left:
            self.by_module[module, position] = left
        else:
            self.by_module.pop((module, position), None)

    def _attribute(self, tensor: torch.Tensor, module: str) -> None:
        """Count a parameter, or its gradient or optimizer state, as a module's, whatever allocated it."""
        known, _ = self._WINFO.get(tensor.untyped_storage(), (None, None))
        if known is not None and known.device.type == "hpu" and getattr(known, "module", module) != module:
            position = self._positions[known.reftype]
            self._count(known.module, position, -known.mem_consumed)
            self._count(module, position, known.mem_consumed)
            known.module = module

    def _attribute_states(self, root: torch.nn.Module) -> None:
        """Attribute parameters and buffers to the modules that have them."""
        self._mod_tracker._get_mod_name(root)  # noqa: SLF001 - see name_modules
        for module in root.modules():
            name = self._mod_tracker.get_known_fqn(module) or ""
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self._owners[tensor] = name
                self._attribute(_local(tensor), name)

    def _track_optimizer_states(self, reftype: Any, optimizer: torch.optim.Optimizer) -> None:
        super()._track_optimizer_states(reftype, optimizer)
        for parameter, states in optimizer.state.items():
            name = self._owners.get(parameter)
            tensors = () if name is None else (parameter.grad, *states.values())
            for tensor in tensors:
                if hasattr(tensor, "untyped_storage"):
                    self._attribute(_local(tensor), name)
        self._recount_new_states()

    def _recount_new_states(self) -> None:
        """Count what an optimizer has kept as its state from its allocation on, also at the peak of the step."""
        step, states = self._observer.step, sorted(self._new_states)
        self._new_states = []
        if not states:
            return
        temporary, state = (self._positions[self._categories[name]] for name in ("TEMP", "OPT"))
        # The last sample already has the category of each.
        samples = step.samples[: len(step.samples) - len(states)]
        first, moved = 0, 0
        for index in range(states[0][0], len(samples)):
            while first < len(states) and states[first][0] <= index:
                moved += states[first][2]
                first += 1
            sizes = list(samples[index].by_category)
            kept = min(moved, sizes[temporary])
            sizes[temporary] -= kept
            sizes[state] += kept
            samples[index].by_category = tuple(sizes)
        self._recount_peak(states, temporary, state)

    def _recount_peak(self, states: list[tuple[int, str, int]], temporary: int, state: int) -> None:
        """Move states in the memory by module of the optimizer's peak, which is when all but the last are there."""
        _, by_module = self._observer.step.peaks.get("optimizer", (0, {}))
        for _, module, size in states:
            kept = min(size, by_module.get((module, temporary), 0))
            if kept:
                by_module[module, state] = by_module.get((module, state), 0) + kept
                by_module[module, temporary] -= kept

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._kind = self._kind_of(func, args)
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._kind = None

    def _kind_of(self, func: Any, args: Any) -> Any:
        """Return the category of what an operator makes, where torch has another one.

        A parameter that autocast has cast is one more copy of the parameter. What DDP allocates are its buckets.
        """
        name = func.__name__.partition(".")[0]
        if name == "_to_copy" and not self._steps_optimizer:
            known, _ = self._WINFO.get(_local(args[0]).untyped_storage(), (None, None))
            return self._categories.PARAM if known is not None and known.reftype == self._categories.PARAM else None
        if name == "empty" and torch_tools.is_called_by_ddp():
            return self._categories.OTH
        return None

    def _track(self, reftype: Any, t: torch.Tensor) -> None:
        super()._track(self._kind or reftype, t)

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
        if len(self._mod_tracker.parents) <= 2:  # noqa: PLR2004 - outside of modules, or a root module
            self._attribute_states(module)
        return sizes

    def _pre_fw_hook(self, module: torch.nn.Module, inputs: Any) -> None:
        if not self._mod_tracker.is_bw and len(self._mod_tracker.parents) == 2:  # noqa: PLR2004 - global, and this
            # torch refuses a second call of a root module, which every training loop makes.
            self.reset_mod_stats()
            self._observer.on_root_module(module)
        super()._pre_fw_hook(module, inputs)

    def _post_fw_hook(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        if module in self.memory_tracking:
            super()._post_fw_hook(module, inputs, outputs)

    def _pre_bw_hook(self, module: torch.nn.Module, args: Any) -> None:
        """Do nothing: every change is reported."""

    def _post_bw_hook(self, module: torch.nn.Module, args: Any) -> None:
        """Do nothing: every change is reported."""
