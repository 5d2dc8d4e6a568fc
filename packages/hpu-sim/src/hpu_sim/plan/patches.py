"""Functions of torch and of the bridge that need data or other processes, replaced while a program is planned."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from hpu_sim.common import frames
from hpu_sim.device import events
from hpu_sim.plan import errors, float8
from hpu_sim.plan.errors import PlanError
from hpu_sim.prediction import torch_tools
from hpu_sim.prediction.bridge_kernels import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.device import PlanDevice
    from hpu_sim.plan.session import Options, Session
    from hpu_sim.prediction.recording import Recording


@contextlib.contextmanager
def applied(session: Session) -> Iterator[None]:
    """Apply the replacements, and make the process group of a job with several ranks."""
    import torch
    import torch.distributed as dist

    options, device = session.options, session.device
    had_group = dist.is_initialized()
    if options.world_size > 1:
        _init_process_group(dist.init_process_group, session)
    with contextlib.ExitStack() as stack:
        for owner in (torch, torch.Tensor):
            replace(stack, owner, "isfinite", _isfinite(owner.isfinite, device))
        replace(stack, torch.Tensor, "__repr__", _show(torch.Tensor.__repr__, device))
        # In a program without Trainer, Fabric and marks.
        stack.callback(
            events.subscribe(
                frozenset({"optimizer_end"}),
                lambda event: session.follow_optimizer(event.arguments[0], frames.program_line()),
            )
        )
        _replace_distributed(stack, session)
        _replace_bridge(stack)
        float8.replace_layers(functools.partial(replace, stack), device)
        stack.enter_context(torch_tools.without_compilation())
        try:
            yield
        finally:
            if dist.is_initialized() and not had_group:
                dist.destroy_process_group()


def _replace_distributed(stack: contextlib.ExitStack, session: Session) -> None:
    """Make process groups that exchange nothing."""
    import torch.distributed as dist

    for name, function in _group_functions(session).items():
        replace(stack, dist, name, function)
    replace(stack, dist.distributed_c10d, "new_group", _new_group(dist.new_group))
    replace(stack, dist, "new_group", dist.distributed_c10d.new_group)


def _replace_bridge(stack: contextlib.ExitStack) -> None:
    """Let each rank of the plan be the first to open its device."""
    from habana_frameworks.torch import hpu

    replace(stack, hpu, "is_initialized", bool)


def _isfinite(original: Callable[..., Any], device: PlanDevice) -> Callable[..., Any]:
    """Return a function whose result is assumed to be True: programs skip a step, or end, for numbers that are not."""

    def isfinite(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        device.native.assume(result, True)
        return result

    return isfinite


def _show(original: Callable[..., str], device: PlanDevice) -> Callable[..., str]:
    """Return a method that shows a tensor without data, and records the read that showing one on the device is."""

    def method(self: Any, *args: Any, **kwargs: Any) -> str:
        if torch_tools.has_data(self):
            return original(self, *args, **kwargs)
        if self.device.type == "hpu":
            device.on_read("print", None)
        return f"tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"

    return method


def _init_process_group(initialize: Callable[..., None], session: Session) -> None:
    options, native = session.options, session.device.native
    torch_tools.init_process_group(native.make_never_backend, initialize, options.rank, options.world_size)


def _group_functions(session: Session) -> dict[str, Callable[..., Any]]:
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
            _init_process_group(initialize, session)

    return {
        "broadcast_object_list": broadcast_object_list,
        "all_gather_object": all_gather_object,
        "init_process_group": init_process_group,
    }


def _new_group(original: Callable[..., Any]) -> Callable[..., Any]:
    def new_group(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{**kwargs, "backend": torch_tools.PLANNED})

    return new_group


def explain(error: Exception, device: PlanDevice) -> Exception:
    """Return the planner's own error if one caused this error; else the error itself."""
    if device.error is not None:
        return device.error
    if isinstance(error, NotImplementedError) and "Meta" in str(error):
        return PlanError(
            f"an operator of the program needs a shape function, from torch.library.register_fake ({error})",
            errors.location_of(error),
        )
    return error


def describe_mode(recording: Recording, options: Options) -> None:
    """Record whether the bridge is in lazy mode.

    Raises:
        PlanError: If the program is to be planned as compiled, and the bridge is in lazy mode.
    """
    from hpu_sim.device import runtime

    recording.lazy = runtime.active_config().lazy
    if recording.lazy and options.compiled:
        msg = "`--compile` needs eager mode, got lazy mode: set PT_HPU_LAZY_MODE=0"
        raise PlanError(msg)
