"""Tensors on a card: dtypes, views, storages, random numbers, and operators that a card does not have."""

from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, contains, error_of
from hpu_doctor.verify.register._tools import BRIDGE, TORCH, hpu

DTYPES = Subject("Dtypes")
VIEWS = Subject("Strides, views and storages")
RANDOM = Subject("Random numbers")
FALLBACK = Subject("Operators on the CPU", mode="eager")

_LATER = ("GAUDI2", "GAUDI3")
_ENGINE = "HabanaAI/Intel_Gaudi3_Software e6cef1c: synapse/mme/mme_reference/chip_fma/"
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


def _sum_of(dtype: torch.dtype, left: list[float], right: list[float]) -> float:
    row, column = (torch.tensor([each], dtype=dtype).to("hpu") for each in (left, right))
    return float((row @ column.mT).item())


# The last product takes the 1 away again, so that a result in bfloat16 has what is left of the sum.
_ROUNDING = {
    "variables": {"HPU_SIM_NUMERICS": "1"},
    "means": {"hpu-sim": "with HPU_SIM_NUMERICS=1, losses would move otherwise than on a card."},
}


@DTYPES.assume(
    source=_ENGINE + "gaudi2_fma.cpp:38-310; the bits of float32 inferred",
    expected=[2.0**-23, 0.0, 2.0**-24],
    generations=("GAUDI2",),
    **_ROUNDING,
)
def gaudi_2_adds_products_in_trees() -> object:
    """A Gaudi 2 adds eight products in bfloat16 before it rounds, and keeps all bits of a product in float32."""
    half, none = 2.0**-24, [0.0] * 7
    together = _sum_of(torch.bfloat16, [1.0, *none, half, half, *none[1:], -1.0, *none], [1.0] * 24)
    apart = _sum_of(torch.bfloat16, [1.0, *none, half, *none, half, *none, -1.0, *none], [1.0] * 32)
    lowest = _sum_of(torch.float32, [1 + 2.0**-12, -1.0], [1 + 2.0**-12, 1 + 2.0**-11])
    return [together, apart, lowest]


@DTYPES.assume(
    source=_ENGINE + "gaudi3_fma.cpp:50-286", expected=[-(2.0**-24), 0.0], generations=("GAUDI3",), **_ROUNDING
)
def gaudi_3_rounds_sums_toward_zero() -> object:
    """A Gaudi 3 rounds sums of products toward zero, in bfloat16 after eight of them."""
    below = _sum_of(torch.bfloat16, [1.0, *[0.0] * 7, -(2.0**-40), *[0.0] * 7, -1.0], [1.0] * 17)
    above = _sum_of(torch.bfloat16, [1.0, *[0.0] * 7, 2.0**-24, 2.0**-25, *[0.0] * 6, -1.0], [1.0] * 17)
    return [below, above]


@DTYPES.assume(
    source=BRIDGE + "common/lazy/utils.cpp:33-35 and habana_kernels/lazy_kernels.cpp:233-331",
    expected=[5, "torch.int64", contains("exceeds Int range"), True],
    mode="lazy",
    simulator="strict",
    means={
        "hpu-core": "class labels would not survive the copy.",
        "hpu-sim": "a program that fails on a card in lazy mode would pass.",
    },
)
def int64_is_int32_in_lazy_mode() -> object:
    """In lazy mode int64 is stored in int32: greater values cannot be copied, and greater results are not exact."""
    tensor = torch.tensor([4], dtype=torch.int64).to("hpu") + 1
    error = error_of(lambda: torch.tensor([2**40], dtype=torch.int64).to("hpu").cpu())
    wrapped = torch.tensor([2**31 - 1], dtype=torch.int64).to("hpu") + 1
    return [tensor.cpu().item(), str(tensor.dtype), error, wrapped.cpu().item() != 2**31]


@DTYPES.assume(
    source=BRIDGE + "backend/helpers/tensor_utils.cpp:681-692",
    expected=contains("Complex datatype is not supported on HPU device."),
    mode="eager",
    means={
        "hpu-core": "modules with complex parameters or buffers would be refused without need.",
        "hpu-doctor": "`explain` would not know the message.",
        "hpu-sim": "programs with complex numbers would run on a card.",
    },
)
def complex_is_refused() -> object:
    """A complex tensor cannot be copied to the card."""
    return error_of(lambda: torch.ones(2, dtype=torch.complex64).to("hpu"))


@DTYPES.assume(
    source="Intel's table of dtypes; optimum-habana: float16/half is not supported on Gaudi.",
    expected=contains("float16/half is not supported on Gaudi"),
    generations=("GAUDI",),
    means={"hpu-precision": "`16-mixed` would be refused where it works."},
)
def float16_on_the_first_generation() -> object:
    """A Gaudi of the first generation refuses float16."""
    return error_of(lambda: torch.ones(2, dtype=torch.float16).to("hpu"))


def _sum(value: float, dtype: torch.dtype, other: float) -> list[object]:
    total = torch.tensor([value], dtype=dtype).to("hpu") + other
    return [str(total.dtype), total.cpu().item()]


def _copied(value: float, dtype: torch.dtype) -> float:
    return torch.tensor([value]).to(dtype).to("hpu").cpu().float().item()


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
DTYPES.table(
    "float8-survives-a-copy",
    "The largest float8 numbers that a card has of both kinds survive a copy to the card and back.",
    {
        "e4m3fn": (240.0, lambda: _copied(240.0, torch.float8_e4m3fn)),
        "e5m2": (57344.0, lambda: _copied(57344.0, torch.float8_e5m2)),
    },
    source="Intel's table of dtypes: Gaudi 2 and 3; a card's E4M3 ends at 240, that of torch at 448",
    generations=_LATER,
    releases=">=1.19",
    means={"hpu-precision": "weights in float8 could not be moved to the card."},
)


def _viewed() -> list[float]:
    base = torch.zeros(4, device="hpu")
    view = base[1:3]
    view.fill_(5)
    first = base.cpu()[1].item()
    base.add_(1)
    return [first, view.cpu()[0].item()]


def _column() -> list[list[float]]:
    base = torch.zeros(2, 2, device="hpu")
    base[:, 1] = 7
    rows: list[list[float]] = base.cpu().tolist()
    return rows


def _is_tied() -> bool:
    pair = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    pair[1].weight = pair[0].weight
    pair.to("hpu")
    return pair[0].weight is pair[1].weight


VIEWS.table(
    "views-share-memory",
    "Views share memory with their base, also where they are strided; a copy has a transposed tensor's elements in "
    "order, a tensor of no dimension on the CPU is a number, and tied weights stay tied.",
    {
        "view and base": ([5.0, 6.0], _viewed),
        "column": ([[0.0, 7.0], [0.0, 7.0]], _column),
        "transposed": ([[1, 3], [2, 4]], lambda: torch.tensor([[1, 2], [3, 4]]).to("hpu").t().cpu().tolist()),
        "number on the CPU": ([3.0], lambda: (torch.ones(1, device="hpu") + torch.tensor(2.0)).cpu().tolist()),
        "tied weights": (True, _is_tied),
    },
    source=BRIDGE + "habana_eager/ops/view.cpp:29-54, copy_from.cpp:160-201,425-446, eager_op.cpp:71-99 and "
    "core/torch_overwrites.py",
    means={
        "hpu-core": "checkpoints of transposed tensors would be wrong, or tied weights be trained apart after `.to`.",
        "hpu-ddp": "gradients as views into buckets would not see reductions.",
        "hpu-fsdp": "flat parameters would not share memory with the module's.",
    },
)


@VIEWS.assume(
    source=BRIDGE + "habana_kernels/lazy_kernels.cpp:6418-6443; a field report of FSDP",
    expected=[contains("should not be called in lazy flow"), contains("should not be called in lazy flow")],
    mode="lazy",
    means={
        "hpu-fsdp": "FSDP is refused in lazy mode where it would work.",
        "hpu-sim": "torch's parametrizations, which call `set_`, would run on a card.",
    },
)
def storages_cannot_be_resized_in_lazy_mode() -> object:
    """Freeing a tensor's storage by `resize_(0)`, and `set_` to another tensor, are refused in lazy mode."""
    tensor, other = torch.ones(4, device="hpu"), torch.zeros(4, device="hpu")
    return [error_of(lambda: tensor.untyped_storage().resize_(0)), error_of(lambda: tensor.set_(other))]  # type: ignore[call-overload]


@VIEWS.assume(
    source="FSDP of torch frees storages so; Intel's page of FSDP names eager mode",
    expected=[0, 16],
    mode="eager",
    means={"hpu-fsdp": "FSDP could not free gathered parameters."},
)
def storages_can_be_resized_in_eager_mode() -> object:
    """A storage can be freed by `resize_(0)` and grown again in eager mode."""
    tensor = torch.ones(4, device="hpu")
    return [tensor.untyped_storage().resize_(size).size() for size in (0, 16)]


@VIEWS.assume(
    source="bridge tests of 1.19 save and load; lightning-habana moves to the CPU first",
    expected=["cpu", "hpu:0"],
    means={"hpu-core": "`HPUCheckpointIO` could not load a checkpoint onto the card."},
)
def checkpoints_load_to_both() -> object:
    """A tensor of the card, moved to the CPU and saved, loads to the CPU and with `map_location` to the card."""
    torch.save({"w": torch.ones(2, device="hpu").cpu()}, "saved.pt")
    return [str(torch.load("saved.pt", map_location=place)["w"].device) for place in ("cpu", "hpu")]


@VIEWS.assume(
    source=BRIDGE + "core/torch_overwrites.py, torch.save",
    expected=[2.0, False],
    mode="lazy",
    simulator="hardware",
    reason="its `torch.save` is torch's own from torch 2.1 on",
    means={"hpu-core": "checkpoints in lazy mode would keep shared storages without its own pickling."},
)
def saving_copies_tensors_in_lazy_mode() -> object:
    """In lazy mode `torch.save` copies each tensor to the CPU by itself, so that tensors no longer share storages."""
    whole = torch.full((4,), 2.0, device="hpu")
    torch.save([whole, whole[:2]], "saved.pt")
    first, second = torch.load("saved.pt", map_location="cpu")
    return [second[0].item(), first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()]


@VIEWS.assume(
    source=BRIDGE + "HPUHooks, pinned allocator; copy_from.cpp:335-365",
    expected=[True, [1.0, 1.0]],
    releases=">=1.19",
    means={"hpu-core": "`pin_memory=True` of a DataLoader would fail or have no effect."},
)
def pinned_memory_copies() -> object:
    """Memory can be pinned for the card, and a non-blocking copy from it arrives."""
    hpu().init()
    pinned = torch.ones(2).pin_memory()
    moved = pinned.to("hpu", non_blocking=True)
    hpu().synchronize()
    return [pinned.is_pinned(), moved.cpu().tolist()]


def _is_repeated(restore: bool) -> bool:
    """Return whether a seed, or a restored state, gives the same numbers again."""
    torch.manual_seed(7)
    state = hpu().get_rng_state()
    first = torch.randn(16, device="hpu").cpu()
    hpu().set_rng_state(state.clone()) if restore else torch.manual_seed(7)
    return torch.equal(first, torch.randn(16, device="hpu").cpu())


def _is_forked() -> bool:
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
        "fork_rng": (True, _is_forked),
        "dropout": ([True, True], _dropout),
    },
    source=BRIDGE + "hpu/random.py:47-58, backend/random.cpp:30-50 and core/torch_overwrites.py",
    means={
        "hpu-core": "`seed_everything` or a resumed run would not repeat numbers, or checkpoints not store states.",
        "hpu-deepspeed": "DeepSpeed, which indexes the list of generators, would fail.",
        "hpu-bucketing": "the warm-up would not restore the card's random state.",
    },
)


def _draws(draw: bool) -> list[bool]:
    """Return whether the generators of the card and the CPU advance."""
    torch.ones(1, device="hpu")
    before, on_cpu = hpu().get_rng_state().clone(), torch.get_rng_state().clone()
    ones = torch.ones(16, device="hpu")
    (torch.randn(16, device="hpu") if draw else torch.nn.functional.dropout(ones, p=0.0, training=True)).cpu()
    return [not torch.equal(before, hpu().get_rng_state()), not torch.equal(on_cpu, torch.get_rng_state())]


RANDOM.table(
    "drawing-advances-the-state",
    "Drawing on the card advances the card's generator, and not the CPU's; dropout with p=0 draws nothing.",
    {
        "randn": ([True, False], lambda: _draws(draw=True)),
        "dropout of nothing": ([False, False], lambda: _draws(draw=False)),
    },
    source=BRIDGE + "hpu_ops/eager/random_gen.cpp:23-33,69-102",
    mode="eager",
    means={
        "hpu-core": "numbers on the card would not change from step to step.",
        "hpu-bucketing": "a warm-up without dropout would change the stream of numbers.",
    },
)


@RANDOM.assume(
    source=TORCH + " without the bridge; backend/random.cpp:30-50",
    expected=True,
    means={"hpu-fsdp": "a generator of a rank could not be passed to operators."},
    releases=">=1.19",
)
def generator_object_works() -> object:
    """A generator of the card can be created and passed to an operator."""
    generators = [torch.Generator(device="hpu").manual_seed(5) for _ in range(2)]
    first, second = (torch.rand(8, device="hpu", generator=generator).cpu() for generator in generators)
    return torch.equal(first, second)


def _airy() -> Any:
    """Return the result of an operator without a kernel in the bridge's list (scripts/hpu_op.yaml, 1.19)."""
    return torch.special.airy_ai(torch.ones(2, device="hpu"))


def _fallbacks() -> int:
    bridge.synchronize()
    return int(str(bridge.metric("cpu_fallback").get("TotalNumber", 0)))


@FALLBACK.assume(
    source=BRIDGE + "hpu_ops/cpu_fallback.cpp:90-119, habana_kernels/fallback_helper.h:47-58 and hpu/metrics.py",
    expected=["hpu", 1, True],
    means={
        "hpu-core": "a program that needs such an operator would fail, or `telemetry` not count it.",
        "hpu-sim": "its findings about operators on the CPU would be errors on a card.",
    },
)
def missing_operator_runs_on_the_cpu() -> object:
    """An operator without a kernel runs on the CPU, its result is on the card, and a metric counts it by name."""
    before = _fallbacks()
    result = _airy()
    counted = _fallbacks() - before
    return [result.device.type, counted, "special_airy_ai" in str(bridge.metric("cpu_fallback")["FallbackOps"])]


@FALLBACK.assume(
    source=BRIDGE + "scripts/hpu_op.yaml",
    expected=0,
    means={
        "hpu-core": "a plain training step would leave the card.",
        "hpu-sim": "its list of operators on the card would be wrong.",
    },
)
def training_step_stays_on_the_card() -> object:
    """A step of a small network with Adam has no operator on the CPU."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8)).to("hpu")
    optimizer = torch.optim.Adam(net.parameters())
    before = _fallbacks()
    torch.nn.functional.mse_loss(net(torch.ones(4, 8, device="hpu")), torch.zeros(4, 8, device="hpu")).backward()
    optimizer.step()
    return _fallbacks() - before
