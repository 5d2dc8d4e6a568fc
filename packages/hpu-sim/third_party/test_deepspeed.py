"""DeepSpeed detects the device, its own accelerator for Gaudi works, and ZeRO trains as plain torch does."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.accelerator.hpu_accelerator import HPU_Accelerator

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.hpu(devices=2, lazy=True),
    # DeepSpeed passes the device to `pin_memory`, which torch >= 2.8 deprecates.
    pytest.mark.filterwarnings("ignore:The argument 'device' of Tensor.(is_pinned|pin_memory):DeprecationWarning"),
]


@pytest.fixture
def accelerator() -> HPU_Accelerator:
    """Return the accelerator that DeepSpeed selects."""
    return get_accelerator()


def test_the_device_is_selected(accelerator: HPU_Accelerator) -> None:
    """DeepSpeed detects it by the bridge, without a setting."""
    assert type(accelerator) is HPU_Accelerator
    assert accelerator._name == "hpu"


def _seeded_alike(accelerator: HPU_Accelerator) -> bool:
    draws = []
    for seed in (accelerator.manual_seed, accelerator.manual_seed_all):
        seed(7)
        draws.append(torch.rand(3, device="hpu").tolist())
    return draws[0] == draws[1] and accelerator.initial_seed() == 7


def _draws_again(accelerator: HPU_Accelerator) -> bool:
    state = accelerator.get_rng_state()
    first = torch.rand(3, device="hpu").tolist()
    accelerator.set_rng_state(state)
    return torch.rand(3, device="hpu").tolist() == first


def _computes_in_a_stream(accelerator: HPU_Accelerator) -> bool:
    stream = accelerator.Stream()
    with accelerator.stream(stream):
        inside = accelerator.current_stream() == stream
        result = torch.ones(2, device="hpu") + 1
    accelerator.current_stream().wait_stream(stream)
    return inside and accelerator.current_stream() == accelerator.default_stream() and result.tolist() == [2.0, 2.0]


def _times_events(accelerator: HPU_Accelerator) -> bool:
    begin, end = (accelerator.Event(enable_timing=True) for _ in range(2))
    begin.record()
    end.record()
    end.synchronize()
    return bool(begin.elapsed_time(end) >= 0 and end.query())


def _counts_memory(accelerator: HPU_Accelerator) -> bool:
    before = accelerator.memory_allocated()
    kept = torch.ones(1 << 20, device="hpu")
    in_use = accelerator.memory_allocated()
    peak = accelerator.max_memory_allocated()
    return bool(kept.numel() == 1 << 20 and in_use >= before + (4 << 20) and peak >= in_use)


def _forgets_the_peak(accelerator: HPU_Accelerator) -> bool:
    torch.empty(1 << 20, device="hpu")
    accelerator.reset_peak_memory_stats()
    return bool(accelerator.max_memory_allocated() == accelerator.memory_allocated())


def _has_96_gib(accelerator: HPU_Accelerator) -> bool:
    limit = 96 << 30
    return bool(
        limit == accelerator.total_memory() == accelerator.memory_reserved() == accelerator.max_memory_reserved()
    )


def _fails_as_on_a_bridge(accelerator: HPU_Accelerator) -> bool:
    # DeepSpeed calls a function that the bridge lacks.
    with pytest.raises(AttributeError, match="reset_max_memory_allocated"):
        accelerator.reset_max_memory_allocated()
    return True


def _warns_of_old_names(accelerator: HPU_Accelerator) -> bool:
    with pytest.warns(FutureWarning):
        return bool(accelerator.memory_cached() == accelerator.max_memory_cached() == accelerator.total_memory())


def _replays_a_graph(accelerator: HPU_Accelerator) -> bool:
    x = torch.ones(2, device="hpu")
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        y = x * 2
    x.fill_(3)
    accelerator.replay_graph(graph)
    return bool(y.tolist() == [6.0, 6.0])


def _pins(accelerator: HPU_Accelerator) -> bool:
    tensor = torch.ones(4)
    pinned = accelerator._torch_pin_memory(tensor)
    empty = accelerator._torch_empty_pinned(tensor, (3,))
    return bool(pinned.is_pinned() and pinned.tolist() == [1.0] * 4 and empty.is_pinned() and empty.shape == (3,))


def _knows_its_tensors(accelerator: HPU_Accelerator) -> bool:
    here = accelerator.on_accelerator(torch.ones(1, device=accelerator.device(0)))
    return bool(here and not accelerator.on_accelerator(torch.ones(1)))


def _builds_operators(accelerator: HPU_Accelerator) -> bool:
    builder = accelerator.create_op_builder("FusedAdamBuilder")
    known = accelerator.get_op_builder("FusedAdamBuilder")
    return isinstance(builder, known) and callable(builder.load().multi_tensor_adam)


def _runs_what_is_late(accelerator: HPU_Accelerator) -> bool:
    ran: list[int] = []
    accelerator.lazy_call(lambda: ran.append(1))
    return ran == [1]


def _names_visible_devices(accelerator: HPU_Accelerator) -> bool:
    environment: dict[str, str] = {}
    accelerator.set_visible_devices_envs(environment, [0, 1])
    return environment == dict.fromkeys(accelerator.visible_devices_envs(), "0,1")


def _keeps_a_compiler(accelerator: HPU_Accelerator) -> bool:
    # The bridge registers its backend in eager mode only.
    before = accelerator.get_compile_backend()
    accelerator.set_compile_backend("eager")
    after = accelerator.get_compile_backend()
    accelerator._compile_backend = before
    return (before, after) == ("hpu_backend", "eager")


def _chooses_its_card(accelerator: HPU_Accelerator) -> bool:
    accelerator.set_device(0)
    return bool(accelerator.current_device() == 0 and accelerator.current_device_name() == "hpu:0")


def _makes(name: str, dtype: torch.dtype) -> Callable[[HPU_Accelerator], bool]:
    def check(accelerator: HPU_Accelerator) -> bool:
        tensor = getattr(accelerator, name)([1, 0])
        return bool(tensor.dtype == dtype and tensor.device.type == "hpu" and tensor.tolist() == [1, 0])

    return check


def _answers(name: str, *arguments: Any, answer: Any = None) -> Callable[[HPU_Accelerator], bool]:
    return lambda accelerator: bool(getattr(accelerator, name)(*arguments) == answer)


# Expected result of each method and property.
_CHECKS: Final[dict[str, Callable[[HPU_Accelerator], bool]]] = {
    "BFloat16Tensor": _makes("BFloat16Tensor", torch.bfloat16),
    "ByteTensor": _makes("ByteTensor", torch.uint8),
    "DoubleTensor": _makes("DoubleTensor", torch.float64),
    "FloatTensor": _makes("FloatTensor", torch.float32),
    "HalfTensor": _makes("HalfTensor", torch.float16),
    "IntTensor": _makes("IntTensor", torch.int32),
    "LongTensor": _makes("LongTensor", torch.int64),
    "Event": _times_events,
    "Stream": _computes_in_a_stream,
    "_lazy_init_class_dict": _builds_operators,
    "_torch_empty_pinned": _pins,
    "_torch_pin_memory": _pins,
    "apply_hpu_workarounds": lambda _: os.environ["PT_HPU_LAZY_ACC_PAR_MODE"] == "0",
    "available_memory": lambda it: bool(it.available_memory() == it.total_memory() - it.memory_allocated()),
    "build_extension": lambda it: inspect.isclass(it.build_extension()),
    "capture_to_graph": _replays_a_graph,
    "communication_backend_name": _answers("communication_backend_name", answer="hccl"),
    "create_graph": _replays_a_graph,
    "create_op_builder": _builds_operators,
    "current_device": _chooses_its_card,
    "current_device_name": _chooses_its_card,
    "current_stream": _computes_in_a_stream,
    "default_generator": lambda it: bool(it.default_generator(0).device.type == "hpu"),
    "default_stream": _computes_in_a_stream,
    "device": _knows_its_tensors,
    "device_count": _answers("device_count", answer=2),
    "device_name": _answers("device_name", 0, answer="hpu"),
    "empty_cache": _answers("empty_cache"),
    "export_envs": _answers("export_envs", answer=[]),
    "get_compile_backend": _keeps_a_compiler,
    "get_op_builder": _builds_operators,
    "get_rng_state": _draws_again,
    "handles_memory_backpressure": _answers("handles_memory_backpressure", answer=True),
    "initial_seed": _seeded_alike,
    "is_available": _answers("is_available", answer=True),
    "is_bf16_supported": _answers("is_bf16_supported", answer=True),
    "is_fp16_supported": _answers("is_fp16_supported", answer=True),
    "is_synchronized_device": _answers("is_synchronized_device", answer=False),
    "is_triton_supported": _answers("is_triton_supported", answer=False),
    "lazy_call": _runs_what_is_late,
    "manual_seed": _seeded_alike,
    "manual_seed_all": _seeded_alike,
    "max_memory_allocated": _counts_memory,
    "max_memory_cached": _warns_of_old_names,
    "max_memory_reserved": _has_96_gib,
    "memory_allocated": _counts_memory,
    "memory_cached": _warns_of_old_names,
    "memory_reserved": _has_96_gib,
    "memory_stats": lambda it: next(iter(it.memory_stats())) == "Limit",
    "on_accelerator": _knows_its_tensors,
    "op_builder_dir": lambda it: (
        importlib.import_module(it.op_builder_dir()).__name__ == "deepspeed.ops.op_builder.hpu"
    ),
    "random": lambda it: it.random() is torch.random,
    "range_pop": _answers("range_pop"),
    "range_push": _answers("range_push", "a step"),
    "replay_graph": _replays_a_graph,
    "reset_max_memory_allocated": _fails_as_on_a_bridge,
    "reset_max_memory_cached": _answers("reset_max_memory_cached"),
    "reset_peak_memory_stats": _forgets_the_peak,
    "resolves_data_dependency": _answers("resolves_data_dependency", answer=True),
    "set_compile_backend": _keeps_a_compiler,
    "set_device": _chooses_its_card,
    "set_rng_state": _draws_again,
    "set_visible_devices_envs": _names_visible_devices,
    "stream": _computes_in_a_stream,
    "supported_dtypes": _answers("supported_dtypes", answer=[torch.float, torch.bfloat16, torch.half]),
    "synchronize": _answers("synchronize"),
    "total_memory": _has_96_gib,
    "use_host_timers": _answers("use_host_timers", answer=False),
    "visible_devices_envs": _names_visible_devices,
}


def test_every_method_is_checked() -> None:
    """A method that a newer DeepSpeed adds fails this test."""
    offered = {name for name, value in vars(HPU_Accelerator).items() if callable(value) or isinstance(value, property)}

    assert _CHECKS.keys() == offered - {"__init__"}


@pytest.mark.parametrize("method", _CHECKS)
def test_a_method_works(method: str, accelerator: HPU_Accelerator) -> None:
    """It works as DeepSpeed's engine needs, or fails as with a real bridge."""
    assert _CHECKS[method](accelerator)


def test_zero_2_trains(run_ranks: Callable[..., list[str]]) -> None:
    """Two ranks that shard gradients and optimizer states get the weights of one process on the CPU."""
    (losses,) = run_ranks("zero_2.py")
    zero, plain = losses.split(" | ")

    reference = torch.tensor([float(loss) for loss in plain.split()])
    torch.testing.assert_close(torch.tensor([float(loss) for loss in zero.split()]), reference, rtol=1e-4, atol=1e-5)
    assert reference[-1] < reference[0] / 2
