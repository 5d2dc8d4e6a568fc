"""Steps of torch's optimizers by the bridge's fused ones, which work on the state of the user's optimizer.

The optimizer stays the user's object, so schedulers, state dicts and checkpoints are torch's. Before its step, a hook
takes the fused step and hides the gradients, so that torch has nothing left to do.
"""

import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from hpu_core import bridge
from hpu_kernels import replacement

State = dict[str, Any]
# By class, the fused one and the names of the tensors of a state.
_KINDS: Final = {
    AdamW: ("FusedAdamW", ("exp_avg", "exp_avg_sq")),
    Adam: ("FusedAdamW", ("exp_avg", "exp_avg_sq")),
    SGD: ("FusedSGD", ("momentum_buffer",)),
    Adagrad: ("FusedAdagrad", ("sum",)),
}
# Options that the fused ones do not have, or compute otherwise: torch's first step has no momentum to dampen.
_DIFFERENT: Final = ("maximize", "capturable", "differentiable", "amsgrad", "dampening", "lr_decay")
_applied: Final[weakref.WeakSet[Optimizer]] = weakref.WeakSet()


def why_left(optimizer: Any) -> str | None:
    """Return why a step of an optimizer is torch's, None if a fused one computes the same."""
    if getattr(optimizer, "grad_scale", None) is not None:
        return "a gradient scaler leaves the unscaling to the step"
    for group in optimizer.param_groups:
        if options := [name for name in _DIFFERENT if group.get(name)]:
            return ", ".join(options)
        if isinstance(group["lr"], torch.Tensor):
            return "the learning rate is a tensor"
        if type(optimizer) is Adam and group["weight_decay"] and not group.get("decoupled_weight_decay"):
            return "weight decay that is added to the gradient"
    return None


def apply(modules: Any, optimizers: Iterable[Any]) -> Iterator[replacement.Undo]:
    """Have the steps of optimizers, of torch or in Fabric's wrapper, computed by the bridge's."""
    del modules
    for given in optimizers:
        optimizer = given.optimizer if type(given).__name__.startswith("Fabric") else given
        if type(optimizer) not in _KINDS:
            replacement.note(type(optimizer).__name__, "", "no optimizer of torch with a fused one")
        elif optimizer not in _applied:
            _applied.add(optimizer)
            yield functools.partial(_applied.discard, optimizer)
            steps = _Steps(*_KINDS[type(optimizer)])
            yield optimizer.register_step_pre_hook(steps.before).remove
            yield optimizer.register_step_post_hook(steps.after).remove


class _Steps:
    """Hooks of an optimizer's steps."""

    # hpu-doctor verify: fused-functions-agree

    def __init__(self, kernel: str, tensors: tuple[str, ...]) -> None:
        self._kernel, self._tensors = kernel, tensors
        self._class: Any = getattr(bridge.optional_module("hpex.optimizers"), kernel)
        self._fused: dict[int, Any] = {}
        self._hidden: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def before(self, optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Take the fused step: after the closure, if there is one."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self._step(optimizer)
            return args, kwargs

        def call() -> Any:
            loss = closure()
            self._step(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": call}

    def after(self, *_: Any) -> None:
        """Show the gradients again."""
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden.clear()

    @torch.no_grad()
    def _step(self, optimizer: Optimizer) -> None:
        reason = why_left(optimizer)
        replacement.note(type(optimizer).__name__, self._kernel, reason)
        if reason is not None:
            return
        # Of a group, parameters with one number of steps and one dtype are one call.
        batches: dict[tuple[int, int, torch.dtype], list[tuple[torch.Tensor, State]]] = {}
        for index, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                if parameter.grad is None or parameter.device.type != "hpu" or parameter.grad.is_sparse:
                    continue
                state = self._make_state(optimizer, group, parameter)
                batches.setdefault((index, _count(state), parameter.dtype), []).append((parameter, state))
        for (index, steps, _), pairs in batches.items():
            self._step_batch(index, optimizer.param_groups[index], steps, pairs)

    def _make_state(self, optimizer: Optimizer, group: State, parameter: torch.Tensor) -> State:
        """Return a parameter's state, which is made as torch makes it where there is none."""
        if self._kernel == "FusedSGD" and not group["momentum"]:
            return {}
        state: State = optimizer.state[parameter]
        if self._kernel == "FusedAdamW" and "step" not in state:
            state["step"] = torch.tensor(0.0)
        for name in self._tensors:
            if state.get(name) is None:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state

    def _step_batch(self, index: int, group: State, steps: int, pairs: list[tuple[torch.Tensor, State]]) -> None:
        fused, parts = self._instance(index, group), []
        for parameter, state in pairs:
            self._hidden.append((parameter, parameter.grad))
            part = _local(parameter)
            # Parts may be empty on a rank.
            if part.numel():
                parts.append(part)
                part.grad = _local(parameter.grad)
                # FusedAdamW counts in its group, FusedAdagrad here.
                fused.state[part] = {name: _local(state[name]) for name in self._tensors if name in state}
                fused.state[part]["step"] = steps
        fused.param_groups[0].update(group, params=parts, step=steps)
        fused.step()
        fused.param_groups[0]["params"] = []
        fused.state.clear()
        for part in parts:
            part.grad = None
        for parameter, state in pairs:
            parameter.grad = None
            if "step" in state:
                state["step"] += 1

    def _instance(self, index: int, group: State) -> Any:
        """Return a group's fused optimizer, without parameters. FusedAdagrad keeps its first learning rate."""
        found = self._fused.get(index)
        if found is None or (self._kernel == "FusedAdagrad" and found.defaults["lr"] != group["lr"]):
            names = inspect.signature(self._class).parameters.keys() & group.keys() - {"params"}
            place = torch.zeros(1, device="hpu", requires_grad=True)
            self._fused[index] = found = self._class([place], **{name: group[name] for name in names})
        return found


def _count(state: State) -> int:
    """Return the number of steps in a state of torch, whose tensor is moved to the host if a fused step made it."""
    step = state.get("step", 0)
    if isinstance(step, torch.Tensor) and step.device.type != "cpu":
        step = state["step"] = step.cpu()
    return int(step)


def _local(tensor: Any) -> Any:
    """Return a tensor, of a DTensor this rank's part."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
