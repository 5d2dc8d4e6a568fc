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
_MIB = 1 << 20


@DTYPES.assume(
    source=BRIDGE + "backend/helpers/cast_sequence.cpp:198-202 and get_n_bytes.h:35-39",
    expected=["torch.float64", True, True],
    simulator="strict",
    means={
        "hpu-core": "metrics in float64 would keep their precision, and the warning about them would be wrong.",
        "hpu-sim": "numbers and memory of float64 programs would differ from a card's.",
    },
)
def float64_is_float32() -> object:
    """A float64 tensor keeps its dtype, and has the precision and the size of float32."""
    value = torch.tensor([1.0 + 2.0**-40], dtype=torch.float64).to("hpu")
    hpu().synchronize()
    start = hpu().memory_allocated()
    tensor = torch.ones(16 * _MIB, dtype=torch.float64, device="hpu")
    hpu().synchronize()
    used = hpu().memory_allocated() - start
    return [str(value.dtype), (value - 1).cpu().item() == 0.0, 4 <= used / tensor.numel() < 6]  # noqa: PLR2004 - bytes.


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


def _sum(value: float, dtype: torch.dtype, other: float) -> list[object]:
    total = torch.tensor([value], dtype=dtype).to("hpu") + other
    return [str(total.dtype), total.cpu().item()]


def _mask() -> list[object]:
    mask = torch.tensor([1.0, -1.0]).to("hpu") < 0
    return [str(mask.dtype), mask.cpu().tolist()]


DTYPES.table(
    "dtypes-compute",
    "float16 and bfloat16 compute in their precision, masks are bool, casts to int32 truncate, and dtypes are promoted "
    "as torch does it.",
    {
        "float16": (["torch.float16", 3.0], lambda: _sum(1.0, torch.float16, 2.0)),
        "bfloat16": (["torch.bfloat16", 256.0], lambda: _sum(256.0, torch.bfloat16, 1.0)),
        "bool": (["torch.bool", [False, True]], _mask),
        "int32 of float32": ([-2, 2], lambda: torch.tensor([-2.7, 2.7]).to("hpu").to(torch.int32).cpu().tolist()),
        "int32 and float32": (
            "torch.float32",
            lambda: str((torch.ones(2, dtype=torch.int32, device="hpu") + torch.ones(2, device="hpu")).dtype),
        ),
    },
    source="Intel's table of dtypes; " + BRIDGE + "backend/helpers/cast_sequence.cpp",
    generations=_LATER,
    means={
        "hpu-core": "masks would come back as numbers, or losses have another dtype than on the CPU.",
        "hpu-precision": "`bf16-mixed` or `16-mixed` would fail or compute in another precision.",
        "hpu-bucketing": "boundaries that are computed on the card would be off by one.",
    },
)


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


def _dropout() -> list[bool]:
    dropped = torch.nn.functional.dropout(torch.ones(4096, device="hpu"), p=0.5).cpu()
    zeros = (dropped == 0).float().mean().item()
    return [0.4 < zeros < 0.6, set(dropped.unique().tolist()) == {0.0, 2.0}]  # noqa: PLR2004 - about half.


RANDOM.table(
    "state-restores-the-stream",
    "The state of the card's one generator is uint8 on the CPU; the same seed or state gives the same numbers, "
    "`fork_rng` restores it, and dropout with p=0.5 zeroes about half of the elements and doubles the others.",
    {
        "state": (["cpu", "torch.uint8", 1], _state),
        "seed": (True, lambda: _is_repeated(restore=False)),
        "set_rng_state": (True, lambda: _is_repeated(restore=True)),
        "fork_rng": (True, _is_restored),
        "dropout": ([True, True], _dropout),
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
