"""Functions of torch and of the bridge that need data or other processes, replaced while a program is planned."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any

from hpu_sim.common import frames
from hpu_sim.plan import errors, float8
from hpu_sim.plan.errors import PlanError
from hpu_sim.prediction import torch_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.fake_device import FakeDevice
    from hpu_sim.plan.session import Options, Session
    from hpu_sim.prediction.recording import Recording


@contextlib.contextmanager
def applied(session: Session) -> Iterator[None]:
    """Apply the replacements, and make the fake process group of a job with several ranks."""
    import torch
    import torch.distributed as dist

    options, device = session.options, session.device
    had_group = dist.is_initialized()
    if options.world_size > 1:
        torch_tools.init_fake_process_group(options.rank, options.world_size)
    with contextlib.ExitStack() as stack:
        replace(stack, torch.utils, "swap_tensors", _swap_tensors(torch.utils.swap_tensors, device))
        replace(stack, torch.nn.Module, "_apply", _apply(torch.nn.Module._apply, device))  # noqa: SLF001 - no public seam
        _replace_data(stack, device)
        for owner in (torch, torch.Tensor):
            replace(stack, owner, "isfinite", _isfinite(owner.isfinite, device))
        replace(stack, torch.Tensor, "numpy", _host_copy(torch.Tensor.numpy, device))
        replace(stack, torch.Tensor, "tolist", _host_copy(torch.Tensor.tolist, device))
        stack.callback(_follow_optimizer(session).remove)
        replace(stack, torch.Tensor, "__format__", _format(torch.Tensor.__format__))
        replace(stack, torch.Tensor, "__repr__", _show(torch.Tensor.__repr__, device))
        _replace_distributed(stack, session)
        _replace_bridge(stack, session)
        float8.replace_layers(functools.partial(replace, stack), device)
        try:
            yield
        finally:
            if dist.is_initialized() and not had_group:
                dist.destroy_process_group()


def _follow_optimizer(session: Session) -> Any:
    """End a step with each step of an optimizer, in a program without Trainer, Fabric and marks."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after_step(optimizer: Any, *args: Any) -> None:
        del args
        session.follow_optimizer(optimizer, frames.program_line())

    return register_optimizer_step_post_hook(after_step)


def _replace_distributed(stack: contextlib.ExitStack, session: Session) -> None:
    """Make process groups that exchange nothing, and skip the checks of DDP and FSDP that need other ranks or data."""
    import torch.distributed as dist
    import torch.nn.parallel.distributed as ddp

    for name, function in _group_functions(session.options.rank, session.options.world_size).items():
        replace(stack, dist, name, function)
    replace(stack, dist.distributed_c10d, "new_group", _new_group(dist.new_group))
    replace(stack, dist, "new_group", dist.distributed_c10d.new_group)
    for module, name, value in torch_tools.fsdp_replacements():
        replace(stack, module, name, value)
    replace(stack, ddp, "_verify_param_shape_across_processes", _do_nothing)


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until a stack is closed."""
    # A static method of a class is restored as one.
    stack.callback(setattr, owner, name, vars(owner).get(name, getattr(owner, name)))
    setattr(owner, name, value)


def _replace_data(stack: contextlib.ExitStack, device: FakeDevice) -> None:
    """Make ``parameter.data = tensor`` change the device of a fake parameter, as FSDP2 moves parameters."""
    import torch

    fake_class = torch_tools.fake_tensor_module().FakeTensor
    data: Any = torch.Tensor.data

    def set_data(self: Any, value: Any) -> None:
        if isinstance(value, fake_class) and not isinstance(self, fake_class):
            device.remove_data(self)
        data.__set__(self, value)
        if isinstance(value, fake_class):
            self.fake_device = value.fake_device

    for owner in (torch.nn.Parameter, fake_class):
        owner.data = property(data.__get__, set_data)
        stack.callback(delattr, owner, "data")


def _replace_bridge(stack: contextlib.ExitStack, session: Session) -> None:
    """Count the graphs that ``mark_step`` ends, and let each rank of the plan be the first to open its device."""
    from habana_frameworks.torch import core, hpu

    def mark_step(*args: Any, **kwargs: Any) -> None:
        del args, kwargs
        session.device.step.graph_ends.append(len(session.device.step.operations))

    for name in ("mark_step", "iter_mark_step"):
        replace(stack, core, name, mark_step)
    replace(stack, hpu, "is_initialized", bool)


def _swap_tensors(original: Callable[..., None], device: FakeDevice) -> Callable[..., None]:
    def swap_tensors(first: Any, second: Any) -> None:
        torch_tools.clear_fake_memo(device.fake_mode)
        original(first, second)

    return swap_tensors


def _apply(original: Callable[..., Any], device: FakeDevice) -> Callable[..., Any]:
    """Return a method that keeps a parameter the same object when it loses its data: shared ones stay shared."""
    import torch

    fake_class = torch_tools.fake_tensor_module().FakeTensor

    def apply(self: Any, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        for parameter in self._parameters.values():
            # A DTensor already wraps a fake tensor.
            if type(parameter) is not torch.nn.Parameter or parameter.device.type != "cpu":
                continue
            # An empty tensor instead of the parameter, to which torch's converter would keep weak references.
            if isinstance(fn(torch.empty(0, dtype=parameter.dtype, device=parameter.device)), fake_class):
                device.remove_data(parameter)
        parameters = self._parameters
        fakes = {name: each for name, each in parameters.items() if isinstance(each, fake_class)}
        # torch would swap them, which it refuses if anything has a weak reference, as an optimizer's hook may.
        self._parameters = {name: each for name, each in parameters.items() if name not in fakes}
        try:
            result = original(self, fn, recurse)
        finally:
            parameters.update(self._parameters)
            self._parameters = parameters
        with torch.no_grad():
            for each in fakes.values():
                each.data = fn(each)
                if each.grad is not None:
                    each.grad.data = fn(each.grad)
        return result

    return apply


def _isfinite(original: Callable[..., Any], device: FakeDevice) -> Callable[..., Any]:
    """Return a function whose result is assumed to be True: programs skip a step, or end, for numbers that are not."""
    fake_class = torch_tools.fake_tensor_module().FakeTensor

    def isfinite(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if isinstance(result, fake_class):
            device.assume(result, value=True)
        return result

    return isfinite


def _host_copy(original: Callable[..., Any], device: FakeDevice) -> Callable[..., Any]:
    """Return a method that gives a fake tensor zeros and records the line."""
    import torch

    fake_class = torch_tools.fake_tensor_module().FakeTensor

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, fake_class):
            return original(self, *args, **kwargs)
        if self.device.type == "hpu":  # A copy on the host was read when it was made.
            device.record_host_read(original.__name__, "zeros")
        return getattr(torch.zeros(self.shape, dtype=self.dtype), original.__name__)()

    return method


def _format(original: Callable[..., str]) -> Callable[..., str]:
    """Return a method that formats a fake number as the value that the plan assumes."""
    fake_class = torch_tools.fake_tensor_module().FakeTensor

    def method(self: Any, spec: str) -> str:
        if not isinstance(self, fake_class):
            return original(self, spec)
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    return method


def _show(original: Callable[..., str], device: FakeDevice) -> Callable[..., str]:
    """Return a method that shows a fake tensor, and records the read that showing a tensor with data is."""
    fake_class = torch_tools.fake_tensor_module().FakeTensor

    def method(self: Any, *args: Any, **kwargs: Any) -> str:
        if isinstance(self, fake_class) and device.is_recording:
            device.record_host_read("print", "no values")
        return original(self, *args, **kwargs)

    return method


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


def _group_functions(rank: int, world_size: int) -> dict[str, Callable[..., Any]]:
    """Return functions that exchange no objects: a plan has one rank, whose own object stands for all."""
    import torch.distributed as dist

    initialize = dist.init_process_group

    def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
        del object_list, args, kwargs

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        del group
        object_list[:] = [obj] * len(object_list)

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        del args, kwargs
        # The plan of several ranks has made it; that of one rank may not need one.
        if not dist.is_initialized():
            torch_tools.init_fake_process_group(rank, world_size, initialize=initialize)

    return {
        "broadcast_object_list": broadcast_object_list,
        "all_gather_object": all_gather_object,
        "init_process_group": init_process_group,
    }


def _new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_group(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "backend": "fake"})

    return new_group


def explain(error: Exception, device: FakeDevice) -> Exception:
    """Return the planner's own error if one caused this error; else the error itself."""
    if device.error is not None:
        return device.error
    if isinstance(error, PlanError):
        return error
    return _explain_fake_tensors(error)


def _explain_fake_tensors(error: Exception) -> Exception:
    """Return an error in the words of a device that has data, or of the planner."""
    location = errors.location_of(error)
    devices = re.search(r"found two different devices (\S+), (\S+)", str(error))
    if devices is not None:
        # The same words as on a device.
        return RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {devices[1]} and "
            f"{devices[2]}!"
        ).with_traceback(error.__traceback__)
    if "no fake impl" in str(error):
        return PlanError(
            f"an operator of the program needs a shape function, from torch.library.register_fake ({error})", location
        )
    if _is_from_fake_tensors(error):
        return PlanError(
            f"the program needs the data of a tensor on the device, which a plan does not have ({error}): use the "
            "tensor on the device, or compute this value before the training step",
            location,
        )
    return error


def _is_from_fake_tensors(error: Exception) -> bool:
    """Return whether torch's code for fake tensors raised an error."""
    text = str(error).lower()
    if any(words in text for words in ("faketensor", "fake tensor", "fake impl", "data is not allocated yet")):
        return True
    return errors.innermost_module(error).startswith("torch._subclasses")


def describe_mode(recording: Recording, options: Options) -> None:
    """Record whether the bridge is in lazy mode.

    Raises:
        PlanError: If the program is to be planned as compiled, and the bridge is in lazy mode.
    """
    from hpu_sim.device import runtime

    recording.lazy = runtime.active_config().lazy
    if recording.lazy and options.compiled:
        raise PlanError("`--compile` needs eager mode, got lazy mode: set PT_HPU_LAZY_MODE=0")
