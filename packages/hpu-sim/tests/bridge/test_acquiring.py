"""Calls that acquire a device. The others are safe in a launcher."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from _pytest.mark import ParameterSet

_TAKES_NONE: Final = (
    "torch.hpu.is_available()",
    "torch.hpu.device_count()",
    "torch.hpu.is_bf16_supported()",
    "torch.hpu.is_initialized()",
    "torch.hpu._initialized",
    "torch.hpu.manual_seed(1)",
    "torch.hpu.seed()",
    "torch.hpu.initial_seed()",
    "torch.hpu.get_rng_state(0)",
    "torch.hpu.get_rng_state_all()",
    "torch.hpu.set_rng_state_all(torch.hpu.get_rng_state_all())",
    "torch.hpu.set_device(0)",
    "torch.manual_seed(1)",
    "torch.seed()",
    "htcore.is_lazy()",
    "htexp._get_device_type()",
    "htexp._is_fp16_supported()",
    "hccl.initialize_distributed_hpu()",
    "library_loader.is_habana_available()",
    "torch.accelerator.device_count()",
    "torch.accelerator.is_available()",
    "torch.get_device_module('hpu')",
    "torch.Generator(device='hpu')",
    "hpu_sim.stats()",
    "hpu_sim.reset_stats()",
)
_TAKES_ONE: Final = (
    "torch.hpu.init()",
    "torch.hpu._lazy_init()",
    "torch.hpu.current_device()",
    "torch.hpu.get_device_name()",
    "torch.hpu.get_device_capability()",
    "torch.hpu.get_device_properties()",
    "torch.hpu.synchronize()",
    "torch.hpu.set_device('hpu')",
    "torch.hpu.get_rng_state()",
    "torch.hpu.set_rng_state(torch.get_rng_state())",
    "torch.hpu.memory_stats()",
    "torch.hpu.memory_allocated()",
    "torch.hpu.memory_reserved()",
    "torch.hpu.mem_get_info()",
    "torch.hpu.memory_summary()",
    "torch.hpu.reset_peak_memory_stats()",
    "torch.hpu.reset_accumulated_memory_stats()",
    "htcore.mark_step()",
    "torch.ones(1).pin_memory()",
    "torch.empty(0, device='hpu')",
    "torch.ones(1).to('hpu')",
    "torch.rand(1, device='hpu')",
    "torch.nn.Linear(1, 1).to('hpu')",
)

# Each call in a child of its own, forked before there is a card: that tells them apart and costs no interpreter.
_PROGRAM: Final = """
import json, os, sys
import hpu_sim
hpu_sim.activate(devices=2)
import torch
import habana_frameworks.torch.core as htcore
import habana_frameworks.torch.utils.experimental as htexp
import habana_frameworks.torch.distributed.hccl as hccl
from habana_frameworks.torch.utils import library_loader
from hpu_sim.device.runtime import has_device

taken = {}
for call in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        code = 2
        try:
            eval(call)
            code = int(has_device())
        finally:
            os._exit(code)
    taken[call] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(taken))
"""


@pytest.fixture(scope="module")
def taken(output_of: Callable[..., str]) -> dict[str, int]:
    """Return the result by call: 1 if it acquired a device, 0 if not, 2 if it failed."""
    calls = json.dumps(_TAKES_NONE + _TAKES_ONE)
    return dict(json.loads(output_of(_PROGRAM, calls, PT_HPU_LAZY_MODE="1")))


# What not every torch has, and since when.
_NEEDS: Final = {
    "torch.get_device_module('hpu')": ("2.3", "get_device_module"),
    "torch.accelerator.device_count()": ("2.9", "accelerator but CUDA where it was built for CUDA"),
    "torch.accelerator.is_available()": ("2.9", "accelerator but CUDA where it was built for CUDA"),
    "torch.Generator(device='hpu')": ("2.9", "generators in Python for this device"),
    "torch.ones(1).pin_memory()": ("2.9", "pinned memory but CUDA's where it was built for CUDA"),
}


def _params(calls: Iterable[str]) -> list[ParameterSet]:
    return [
        pytest.param(call, marks=pytest.mark.needs_torch(*_NEEDS[call]) if call in _NEEDS else ()) for call in calls
    ]


@pytest.mark.parametrize("call", _params(_TAKES_NONE))
def test_a_query_acquires_no_device(call: str, taken: dict[str, int]) -> None:
    """A launcher can call it and leave every device to its ranks."""
    assert taken[call] == 0


@pytest.mark.parametrize("call", _params(_TAKES_ONE))
def test_a_use_acquires_a_device(call: str, taken: dict[str, int]) -> None:
    """Some of these look harmless, but acquire a device in the bridge too."""
    assert taken[call] == 1
