"""Memory of a plan by category and module.

The device reports each allocation and release (``csrc/events.h``). What a storage holds is often known only later: a
gradient is one once autograd keeps it, and the state of an optimizer is what it still holds after its step. The memory
over a step is therefore added up when the step is complete, with the last that is known of each storage. By then it is
known too which values a graph's kernels keep to themselves: a card has no memory for them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.prediction.recording import CATEGORIES, ModuleBytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from hpu_sim.device.native import Native
    from hpu_sim.plan.modules import ModuleTracker
    from hpu_sim.prediction.recording import Phase, StepRecording

_PARAMETER, _GRADIENT, _STATE, _ACTIVATION, _TEMPORARY, _COMMUNICATION, _ = range(len(CATEGORIES))
# What is made in each part of a step, unless more is known of it.
_MADE: Final = {"setup": _ACTIVATION, "forward": _ACTIVATION, "backward": _TEMPORARY, "optimizer": _TEMPORARY}

# Attribute of a parameter whose gradients are followed.
_HAS_HOOK: Final = "_hpu_sim_follows_gradient"

#: Change of the memory: operators before it, part of the step, number of the storage, and bytes.
_Change = tuple[int, "Phase", int, int]


class MemoryRecorder:
    """Recorder of the memory of a device.

    Args:
        native: Device.
        modules: Tracker of the module that runs.
    """

    def __init__(self, native: Native, modules: ModuleTracker) -> None:
        self._native = native
        self._modules = modules
        self._changes: list[_Change] = []
        # Bytes of each storage that was alive when the step began, and category and module of each.
        self._live: dict[int, int] = {}
        self._tags: dict[int, tuple[int, str]] = {}

    def name_modules(self, root: torch.nn.Module) -> None:
        """Give the modules below a root their qualified names, and count their parameters as such."""
        self._modules.name(root)
        for module in root.modules():
            name = self._modules.name_of(module)
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if tensor.requires_grad and tensor.is_leaf and not hasattr(tensor, _HAS_HOOK):
                    setattr(tensor, _HAS_HOOK, True)
                    tensor.register_post_accumulate_grad_hook(self._on_gradient)
                self._mark(tensor, _PARAMETER, name)
                if tensor.is_leaf and tensor.grad is not None:
                    self._mark(tensor.grad, _GRADIENT, name)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._mark(parameter.grad, _GRADIENT, self._module_of(parameter))

    def mark_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the gradients of an optimizer's parameters as such."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                number = self._number(parameter)
                category, name = self._tags.get(number, (_PARAMETER, ""))
                if category != _PARAMETER:
                    # A copy in higher precision, as DeepSpeed's, is no parameter of a module.
                    self._tags[number] = _STATE, name
                if parameter.grad is not None:
                    self._mark(parameter.grad, _GRADIENT, name)

    def mark_states(self, optimizer: torch.optim.Optimizer) -> None:
        """Count what an optimizer holds as its state."""
        for parameter, states in optimizer.state.items():
            for each in states.values() if isinstance(states, dict) else ():
                if hasattr(each, "untyped_storage"):
                    self._mark(each, _STATE, self._module_of(parameter))

    def mark_communication(self, tensor: torch.Tensor) -> None:
        """Count a tensor as a communication buffer, unless it is a gradient, a parameter or optimizer state."""
        number = self._number(tensor)
        category, module = self._tags.get(number, (_PARAMETER, ""))
        if category in {_ACTIVATION, _TEMPORARY}:
            self._tags[number] = _COMMUNICATION, module

    def mark_copy(self, source: torch.Tensor, copy: torch.Tensor) -> None:
        """Count a copy of a parameter in another dtype, as autocast makes them, as one more of the parameter."""
        category, module = self._tags.get(self._number(source), (_ACTIVATION, ""))
        if category == _PARAMETER:
            self._mark(copy, _PARAMETER, module)

    def _module_of(self, parameter: torch.Tensor) -> str:
        return self._tags.get(self._number(parameter), (_PARAMETER, ""))[1]

    def _number(self, tensor: Any) -> int:
        (number,) = self._native.storage_numbers([getattr(tensor, "_local_tensor", tensor)])
        return number

    def _mark(self, tensor: Any, category: int, module: str) -> None:
        number = self._number(tensor)
        if number > 0:
            self._tags[number] = category, module

    def take(self, step: StepRecording, phase: Phase, before: int | None = None) -> None:
        """Take the changes since the last call as those of a part of the step.

        Args:
            step: Step.
            phase: Part of the step.
            before: Number of operators before the one that has just run, which followed what was freed.
        """
        changes = self._native.take_memory_changes()
        if not changes:
            return
        after, module = len(step.operations), self._modules.current
        for number, change in changes:
            self._changes.append((before if change < 0 and before is not None else after, phase, number, change))
            if change > 0 and number not in self._tags:
                self._tags[number] = _MADE[phase], module

    def begin(self, step: StepRecording) -> None:
        """Begin with the memory that is in use."""
        self._modules.begin()
        step.peaks["forward"] = self._by_module()

    def finish(self, step: StepRecording, inner: Mapping[int, int]) -> None:
        """Find the memory by module where that of each part of a step is highest.

        Args:
            step: Step.
            inner: Storages that a graph does without, if they are freed within so many operators.
        """
        self._drop(inner)
        # Memory from before the plan has no tag, and counts as none.
        changes = [each for each in self._changes if each[2] in self._tags]
        total = sum(self._live.values())
        highest: dict[Phase, tuple[int, int]] = dict.fromkeys(step.peaks, (total, -1))
        for index, (_, phase, _, change) in enumerate(changes):
            total += change
            highest[phase] = max(highest.get(phase, (0, -1)), (total, index), key=lambda pair: pair[0])
        phases = {index: phase for phase, (_, index) in highest.items()}
        for index, (_, _, number, change) in enumerate(changes):
            self._live[number] = self._live.get(number, 0) + change
            if self._live[number] == 0:
                del self._live[number]
            if index in phases:
                step.peaks[phases[index]] = self._by_module()
        self._changes = []
        self._tags = {number: self._tags[number] for number in self._live}

    def _drop(self, inner: Mapping[int, int]) -> None:
        """Leave out the storages that a graph does without."""
        sizes: Counter[int] = Counter()
        last: dict[int, int] = {}
        for after, _, number, change in self._changes:
            if number in inner:
                sizes[number] += change
                last[number] = after
        unused = {number for number in last if sizes[number] == 0 and last[number] <= inner[number]} - self._live.keys()
        self._changes = [each for each in self._changes if each[2] not in unused]

    def _by_module(self) -> tuple[ModuleBytes, ...]:
        found: Counter[tuple[str, int]] = Counter()
        for number, size in self._live.items():
            category, module = self._tags[number]
            found[module, category] += size
        return tuple(ModuleBytes(*key, size) for key, size in found.items())
