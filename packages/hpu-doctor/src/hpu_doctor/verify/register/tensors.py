"""Tensors on a card: dtypes, views, storages, random numbers, and operators that a card does not have."""

from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject
from hpu_doctor.verify.register._tools import BRIDGE, hpu

DTYPES = Subject("Dtypes")
RANDOM = Subject("Random numbers")
FALLBACK = Subject("Operators on the CPU", mode="eager")

_LATER = ("GAUDI2", "GAUDI3")


@DTYPES.assume(
    source=BRIDGE + "common/eager/utils.cpp:29-42",
    expected=2**40 + 1,
    mode="eager",
    generations=_LATER,
    means={"hpu-core": "step counters and random states in int64 would be cut."},
)
def int64_is_native_in_eager_mode() -> object:
    """In eager mode, int64 keeps values above the range of int32 on Gaudi 2 and later."""
    return (torch.tensor([2**40], dtype=torch.int64).to("hpu") + 1).cpu().item()


def _is_repeated(restore: bool) -> bool:
    """Return whether a seed, or a restored state, gives the same numbers again."""
    torch.manual_seed(7)
    state = hpu().get_rng_state()
    first = torch.randn(16, device="hpu").cpu()
    hpu().set_rng_state(state.clone()) if restore else torch.manual_seed(7)
    return torch.equal(first, torch.randn(16, device="hpu").cpu())


def _is_restored() -> bool:
    before = hpu().get_rng_state().clone()
    with torch.random.fork_rng():
        torch.randn(16, device="hpu").cpu()
    return torch.equal(before, hpu().get_rng_state())


def _state() -> list[object]:
    state = hpu().get_rng_state()
    return [state.device.type, str(state.dtype), len(hpu().random.default_generators)]


RANDOM.table(
    "state-restores-the-stream",
    "The state of the card's one generator is uint8 on the CPU; the same seed or state gives the same numbers, "
    "and `fork_rng` restores it.",
    {
        "state": (["cpu", "torch.uint8", 1], _state),
        "seed": (True, lambda: _is_repeated(restore=False)),
        "set_rng_state": (True, lambda: _is_repeated(restore=True)),
        "fork_rng": (True, _is_restored),
    },
    source=BRIDGE + "hpu/random.py:47-58, backend/random.cpp:30-50 and core/torch_overwrites.py",
    means={
        "hpu-core": "`seed_everything` or a resumed run would not repeat numbers, or checkpoints not store states.",
        "hpu-deepspeed": "DeepSpeed, which indexes the list of generators, would fail.",
        "hpu-bucketing": "the warm-up would not restore the card's random state.",
    },
)


def _missing_op() -> Any:
    """Return the result of an operator without a kernel in the bridge's list (scripts/hpu_op.yaml, 1.19)."""
    return torch.special.airy_ai(torch.ones(2, device="hpu"))


def _fallbacks() -> int:
    bridge.synchronize()
    return int(str(bridge.metric("cpu_fallback").get("TotalNumber", 0)))


@FALLBACK.assume(
    source=BRIDGE + "hpu_ops/cpu_fallback.cpp:90-119, habana_kernels/fallback_helper.h:47-58 and hpu/metrics.py",
    expected=["hpu", 1, True],
    means={
        "hpu-core": "a program that needs such an operator would fail.",
        "hpu-sim": "its findings about operators on the CPU would be errors on a card.",
    },
)
def missing_operator_runs_on_the_cpu() -> object:
    """An operator without a kernel runs on the CPU, its result is on the card, and a metric counts it by name."""
    before = _fallbacks()
    result = _missing_op()
    counted = _fallbacks() - before
    return [result.device.type, counted, "special_airy_ai" in str(bridge.metric("cpu_fallback")["FallbackOps"])]
