"""Functions of torch and of the bridge that need data or other processes, replaced while a program is planned."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.plan import errors
from hpu_sim.plan.errors import PlanError
from hpu_sim.prediction import attention, torch_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.recorder import PlanRecorder

# Index of the probability among the arguments of FusedSDPA.
_DROPOUT: Final = 4


def replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until a stack is closed."""
    # A static method of a class is restored as one.
    stack.callback(setattr, owner, name, vars(owner).get(name, getattr(owner, name)))
    setattr(owner, name, value)


@contextlib.contextmanager
def applied(recorder: PlanRecorder) -> Iterator[None]:
    """Apply the replacements, and make the process group of a job with several ranks."""
    import torch
    import torch.distributed as dist
    from habana_frameworks.torch import hpu
    from habana_frameworks.torch.hpex.experimental._te_impl import linear
    from torch.nn.attention import SDPBackend, sdpa_kernel

    options = recorder.options
    had_group = dist.is_initialized()
    make_group = functools.partial(
        torch_tools.init_process_group,
        recorder.native.make_planned_backend,
        dist.init_process_group,
        0,
        options.world_size,
    )
    if options.world_size > 1:
        make_group()
    with contextlib.ExitStack() as stack:
        put = functools.partial(replace, stack)
        for owner in (torch, torch.Tensor):
            put(owner, "isfinite", _true(owner.isfinite, recorder))
        put(torch, torch_tools.IS_ALL_TRUE, _true(getattr(torch, torch_tools.IS_ALL_TRUE), recorder))
        put(torch.Tensor, "__repr__", _show(torch.Tensor.__repr__, recorder))
        for name, function in _group_functions(make_group).items():
            put(dist, name, function)
        put(dist.distributed_c10d, "new_group", dist.new_group)
        # Each rank of the plan is the first to open its device.
        put(hpu, "is_initialized", bool)
        _observe_batches(put, recorder)
        # A card's backward pass returns the maxima with the casts; what is made of them is not known.
        put(linear, "update_scales_after_backward", lambda *_: None)
        _decompose_attention(put, recorder)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            yield
        finally:
            if dist.is_initialized() and not had_group:
                dist.destroy_process_group()


def _observe_batches(put: Callable[[Any, str, Any], None], recorder: PlanRecorder) -> None:
    """Observe what is drawn from every DataLoader, and resize it if there is a size."""
    loader_iterator: Any = torch_tools.loader_iterator_class()
    next_batch, size = loader_iterator.__next__, recorder.options.batch_size

    def draw(self: Any) -> Any:
        recorder.look()
        batch = next_batch(self)
        if size is not None:
            batch = recorder.batches.resize(batch, size, getattr(self._index_sampler, "batch_size", None))
        recorder.batches.add(self, batch)
        return batch

    put(loader_iterator, "__next__", draw)


def _decompose_attention(put: Callable[[Any, str, Any], None], recorder: PlanRecorder) -> None:
    """Take attention of torch by the path of separate operators, and that of the bridge as one operator."""
    from habana_frameworks.torch.hpex import kernels
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel

    separate, fused = nn.functional.scaled_dot_product_attention, kernels.FusedSDPA.apply

    @functools.wraps(separate)
    def separate_attention(*args: Any, **kwargs: Any) -> Any:
        recorder.notes.add(attention.DECOMPOSED)
        return separate(*args, **kwargs)

    @functools.wraps(fused)
    def fused_attention(*args: Any, **kwargs: Any) -> Any:
        # The bridge's kernel has dropout (`sdpa_recomp_fwd_dropout`), the CPU's none; a plan needs no numbers.
        args = tuple(0.0 if index == _DROPOUT else each for index, each in enumerate(args))
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return fused(*args, **kwargs)

    put(nn.functional, "scaled_dot_product_attention", separate_attention)
    put(kernels.FusedSDPA, "apply", staticmethod(fused_attention))


def _true(original: Callable[..., Any], recorder: PlanRecorder) -> Callable[..., Any]:
    """Return a function whose result is assumed to be True: programs skip a step, or end, where it is not."""

    def function(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder.native.assume(result, True)
        return result

    return function


def _show(original: Callable[..., str], recorder: PlanRecorder) -> Callable[..., str]:
    """Return a method that shows a tensor without data, and records the read that showing one on the device is."""

    def method(self: Any, *args: Any, **kwargs: Any) -> str:
        if torch_tools.has_data(self):
            return original(self, *args, **kwargs)
        if self.device.type == "hpu":
            recorder.on_read("print", None)
        return f"tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"

    return method


def _group_functions(make_group: Callable[[], None]) -> dict[str, Callable[..., Any]]:
    """Return functions that exchange nothing: a plan has one rank, whose own object stands for all."""
    import torch.distributed as dist

    make_subgroup = dist.new_group

    def broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
        del object_list, args, kwargs

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        del group
        object_list[:] = [obj] * len(object_list)

    def init_process_group(*args: Any, **kwargs: Any) -> None:
        del args, kwargs
        # The plan of several ranks has made it; that of one rank may not need one.
        if not dist.is_initialized():
            make_group()

    def new_group(*args: Any, **kwargs: Any) -> Any:
        return make_subgroup(*args, **{**kwargs, "backend": torch_tools.PLANNED})

    return {each.__name__: each for each in (broadcast_object_list, all_gather_object, init_process_group, new_group)}


def explain(error: Exception, recorder: PlanRecorder) -> Exception:
    """Return the planner's own error if one caused this error; else the error itself."""
    if recorder.error is not None:
        return recorder.error
    if isinstance(error, NotImplementedError) and "Meta" in str(error):
        return PlanError(
            f"an operator of the program needs a shape function, from torch.library.register_fake ({error})",
            errors.location_of(error),
        )
    return error
