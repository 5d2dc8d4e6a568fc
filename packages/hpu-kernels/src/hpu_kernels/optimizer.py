"""Steps of torch's optimizers by the bridge's fused ones, which work on the state of the user's optimizer.

The optimizer stays the user's object, so schedulers, state dicts and checkpoints are torch's. Before its step, a hook
takes the fused step and hides the gradients, so that torch has nothing left to do.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch
from torch.optim import Adagrad, Adam, AdamW, Optimizer

from hpu_core import bridge
from hpu_kernels import scope, table

# Set by torch where `fused=True`; a gradient scaler and Lightning then leave the unscaling to the step.
_SCALES: Final = "_step_supports_amp_scaling"


class _Kind(NamedTuple):
    """A fused optimizer.

    Attributes:
        kernel: Its name.
        arguments: Arguments by name, whose values are those of the groups of torch's.
        state: Names of its tensors in the state of a parameter.
        differs: Returns why a group is torch's, None if the fused step is the same.
        counts_in_group: Whether its number of steps is in the group, and not in the state of a parameter.
    """

    kernel: str
    arguments: tuple[str, ...]
    state: tuple[str, ...]
    differs: Callable[[dict[str, Any]], str | None]
    counts_in_group: bool = False


def _adam_differs(group: dict[str, Any]) -> str | None:
    if group["amsgrad"]:
        return "amsgrad"
    # AdamW of older versions of torch is no Adam.
    if group["weight_decay"] and not group.get("decoupled_weight_decay", True):
        return "weight decay that is added to the gradient"
    return None


_ADAMW: Final = _Kind(
    "FusedAdamW", ("lr", "betas", "eps", "weight_decay"), ("exp_avg", "exp_avg_sq"), _adam_differs, counts_in_group=True
)
_KINDS: Final = {
    AdamW: _ADAMW,
    Adam: _ADAMW._replace(
        differs=lambda group: _adam_differs({"decoupled_weight_decay": False, **group}),
    ),
    torch.optim.SGD: _Kind(
        "FusedSGD",
        ("lr", "momentum", "weight_decay", "dampening", "nesterov"),
        ("momentum_buffer",),
        # torch's first step has none; the kernel's momentum begins at zero.
        lambda group: "dampening" if group["momentum"] and group["dampening"] else None,
    ),
    Adagrad: _Kind(
        "FusedAdagrad",
        ("lr", "weight_decay", "eps"),
        ("sum",),
        lambda group: "a learning rate that decays by steps" if group["lr_decay"] else None,
    ),
}


_applied: Final[weakref.WeakSet[Optimizer]] = weakref.WeakSet()


def _why_left(optimizer: Any) -> str | None:
    kind = _KINDS.get(type(optimizer))
    if kind is None:
        return "no optimizer of torch with a fused one"
    for group in optimizer.param_groups:
        options = [name for name in ("maximize", "capturable", "differentiable") if group.get(name)]
        if options or isinstance(group["lr"], torch.Tensor):
            return ", ".join(options) or "the learning rate is a tensor"
        if (reason := kind.differs(group)) is not None:
            return reason
    return None


def apply(optimizer: Any) -> tuple[table.Row, list[scope.Undo]]:
    """Have the steps of an optimizer computed by the bridge's; also returns how to undo it.

    Args:
        optimizer: One of torch, or Fabric's wrapper of one.
    """
    if type(optimizer).__name__.startswith("Fabric"):
        optimizer = optimizer.optimizer
    name = type(optimizer).__name__
    if (reason := _why_left(optimizer)) is not None:
        return table.Row(name, None, 1, reason), []
    row = table.Row(name, _KINDS[type(optimizer)].kernel, 1)
    if optimizer in _applied:
        return row, []
    _applied.add(optimizer)
    steps = _Steps(_KINDS[type(optimizer)])
    handles = optimizer.register_step_pre_hook(steps.before), optimizer.register_step_post_hook(steps.after)
    undo = [functools.partial(_applied.discard, optimizer), *(handle.remove for handle in handles)]
    if getattr(optimizer, _SCALES, False):
        setattr(optimizer, _SCALES, False)
        undo.append(functools.partial(setattr, optimizer, _SCALES, True))
    return row, undo


class _Steps:
    """Hooks of an optimizer's steps."""

    # hpu-doctor verify: fused-functions-agree

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._class: Any = getattr(bridge.optional_module("hpex.optimizers"), kind.kernel)
        self._fused: dict[Any, Any] = {}
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
        if _why_left(optimizer) is not None:
            return
        for key, (group, steps, states) in enumerate(self._batches(optimizer)):
            self._step_batch(optimizer, self._instance(key, group), group, steps, states)

    def _batches(
        self, optimizer: Optimizer
    ) -> Iterator[tuple[dict[str, Any], int, dict[torch.Tensor, list[torch.Tensor]]]]:
        """Yield the states of parameters with one group, number of steps and dtype, after group and number."""
        for group in optimizer.param_groups:
            batches: dict[tuple[int, torch.dtype], dict[torch.Tensor, list[torch.Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.device.type == "hpu" and not parameter.grad.is_sparse:
                    state = self._state(optimizer, group, parameter)
                    if all(each.device.type == "hpu" for each in state):
                        key = _count(optimizer.state.get(parameter, {})), parameter.dtype
                        batches.setdefault(key, {})[parameter] = state
            for (steps, _), states in batches.items():
                yield group, steps, states

    def _state(self, optimizer: Optimizer, group: dict[str, Any], parameter: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of a parameter's state, which is made as torch makes it where there is none."""
        if self._kind.kernel == "FusedSGD" and not group["momentum"]:
            return []
        state = optimizer.state[parameter]
        if self._kind.counts_in_group and "step" not in state:
            state["step"] = torch.tensor(0.0)
        for name in self._kind.state:
            if state.get(name) is None:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return [state[name] for name in self._kind.state]

    def _step_batch(
        self,
        optimizer: Optimizer,
        fused: Any,
        group: dict[str, Any],
        steps: int,
        states: dict[torch.Tensor, list[torch.Tensor]],
    ) -> None:
        local = {parameter: _local(parameter) for parameter in states}
        for parameter, part in local.items():
            state = dict(zip(self._kind.state, map(_local, states[parameter]), strict=False))
            fused.state[part] = state if self._kind.counts_in_group else {**state, "step": steps}
            part.grad = _local(parameter.grad)
        # Parts may be empty on a rank.
        fused.param_groups[0].update(group, params=[part for part in local.values() if part.numel()], step=steps)
        fused.step()
        fused.param_groups[0]["params"] = []
        fused.state.clear()
        for parameter, part in local.items():
            if "step" in optimizer.state.get(parameter, {}):
                optimizer.state[parameter]["step"] += 1
            self._hidden.append((parameter, parameter.grad))
            part.grad = parameter.grad = None

    def _instance(self, key: int, group: dict[str, Any]) -> Any:
        """Return a fused optimizer without parameters. FusedAdagrad keeps the learning rate that it is made with."""
        options = {name: group[name] for name in self._kind.arguments}
        found = self._fused.get(key)
        if found is None or (self._kind.kernel == "FusedAdagrad" and found.defaults["lr"] != options["lr"]):
            place = torch.zeros(1, device="hpu", requires_grad=True)
            self._fused[key] = found = self._class([place], **options)
        return found


def _count(state: dict[str, Any]) -> int:
    """Return the number of steps in a state of torch, whose tensor is moved to the host if a fused step made it."""
    step = state.get("step", 0)
    if isinstance(step, torch.Tensor) and step.device.type != "cpu":
        step = state["step"] = step.cpu()
    return int(step)


def _local(tensor: Any) -> Any:
    """Return a tensor, of a DTensor this rank's part."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
