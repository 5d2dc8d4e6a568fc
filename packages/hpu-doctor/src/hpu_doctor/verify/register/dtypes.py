"""Dtypes: what a card stores, converts and refuses, by mode and generation."""

import torch

from hpu_doctor.verify.assumption import Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, hpu

SUBJECT = Subject("Dtypes")
assume = SUBJECT.assume

_LATER = ("GAUDI2", "GAUDI3")
_MIB = 1 << 20


@assume(
    source=BRIDGE + "backend/helpers/cast_sequence.cpp:198-202",
    expected=["torch.float64", True],
    simulator="strict",
    means={
        "hpu-core": "metrics in float64 would keep their precision, and the warning about them would be wrong.",
        "hpu-sim": "numbers of float64 programs would differ from a card's.",
    },
)
def float64_is_float32() -> object:
    """A float64 tensor keeps its dtype, and has the precision of float32."""
    value = torch.tensor([1.0 + 2.0**-40], dtype=torch.float64).to("hpu")
    return [str(value.dtype), (value - 1).cpu().item() == 0.0]


@assume(
    source=BRIDGE + "backend/helpers/get_n_bytes.h:35-39",
    expected=True,
    simulator="strict",
    means={"hpu-sim": "plans would count half the bytes of float64 tensors."},
)
def float64_takes_four_bytes() -> object:
    """A float64 tensor takes four bytes per element on the card."""
    hpu().synchronize()
    start = hpu().memory_allocated()
    tensor = torch.ones(16 * _MIB, dtype=torch.float64, device="hpu")
    hpu().synchronize()
    used = hpu().memory_allocated() - start
    return bool(tensor.numel() * 4 <= used < tensor.numel() * 6)


@assume(
    source=BRIDGE + "common/eager/utils.cpp:29-42",
    expected=2**40 + 1,
    mode="eager",
    generations=_LATER,
    means={"hpu-core": "step counters and random states in int64 would be cut."},
)
def int64_is_native_in_eager_mode() -> object:
    """In eager mode, int64 keeps values above the range of int32 on Gaudi 2 and later."""
    return (torch.tensor([2**40], dtype=torch.int64).to("hpu") + 1).cpu().item()


@assume(
    source=BRIDGE + "habana_kernels/lazy_kernels.cpp:233-331",
    expected=Contains("exceeds Int range"),
    mode="lazy",
    simulator="strict",
    means={"hpu-sim": "a program that fails on a card in lazy mode would pass."},
)
def large_int64_is_refused_in_lazy_mode() -> object:
    """In lazy mode, copying an int64 above the range of int32 to the card is an error."""
    return error_of(lambda: torch.tensor([2**40], dtype=torch.int64).to("hpu").cpu())


@assume(
    source=BRIDGE + "common/lazy/utils.cpp:33-35",
    expected=[5, "torch.int64"],
    mode="lazy",
    means={"hpu-core": "class labels would not survive the copy."},
)
def small_int64_survives_lazy_mode() -> object:
    """In lazy mode, int64 values within int32 survive, and the tensor says int64."""
    tensor = torch.tensor([4], dtype=torch.int64).to("hpu") + 1
    return [tensor.cpu().item(), str(tensor.dtype)]


@assume(
    source=BRIDGE + "common/lazy/utils.cpp:33-35",
    expected=True,
    mode="lazy",
    simulator="strict",
    means={"hpu-sim": "sums of int64 that a card wraps would be exact."},
)
def int64_wraps_in_lazy_mode() -> object:
    """In lazy mode, int64 results beyond int32 are not exact."""
    tensor = torch.tensor([2**31 - 1], dtype=torch.int64).to("hpu")
    return (tensor + 1).cpu().item() != 2**31


@assume(
    source=BRIDGE + "backend/helpers/tensor_utils.cpp:681-692",
    expected=Contains("Complex datatype is not supported on HPU device."),
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


@assume(
    source=BRIDGE + "backend/helpers/tensor_utils.cpp:681-692",
    expected=Contains("Complex datatype is not supported on HPU device."),
    mode="eager",
    simulator="strict",
    means={"hpu-sim": "programs that make complex numbers on the card would run there."},
)
def complex_is_refused_on_the_card() -> object:
    """A tensor on the card cannot be converted to a complex dtype."""
    return error_of(lambda: torch.ones(2, device="hpu").to(torch.complex64).cpu())


@assume(
    source="Intel's table of dtypes; optimum-habana: float16/half is not supported on Gaudi.",
    expected=Contains("float16/half is not supported on Gaudi"),
    generations=("GAUDI",),
    means={"hpu-precision": "`16-mixed` would be refused where it works."},
)
def float16_on_the_first_generation() -> object:
    """A Gaudi of the first generation refuses float16."""
    return error_of(lambda: torch.ones(2, dtype=torch.float16).to("hpu"))


@assume(
    source="Intel's table of dtypes: Gaudi 2 and 3",
    expected=["torch.float16", 3.0],
    generations=_LATER,
    means={"hpu-precision": "`16-mixed` would fail."},
)
def float16_computes() -> object:
    """float16 computes on Gaudi 2 and later."""
    total = torch.ones(2, dtype=torch.float16, device="hpu") + 2
    return [str(total.dtype), total.cpu()[0].item()]


@assume(
    source="Intel's table of dtypes: all generations",
    expected=["torch.bfloat16", 256.0],
    means={"hpu-precision": "`bf16-mixed` would compute in another precision."},
)
def bfloat16_rounds() -> object:
    """bfloat16 computes with 8 bits of precision: 256 + 1 is 256."""
    total = torch.tensor([256.0], dtype=torch.bfloat16).to("hpu") + 1
    return [str(total.dtype), total.cpu().item()]


@assume(
    source="Intel's table of dtypes: Gaudi 2 and 3; a card's E4M3 ends at 240, that of torch at 448",
    expected=[240.0, 57344.0],
    generations=_LATER,
    releases=">=1.19",
    means={"hpu-precision": "weights in float8 could not be moved to the card."},
)
def float8_survives_a_copy() -> object:
    """The largest float8 numbers that a card has of both kinds survive a copy to the card and back."""
    values = ((240.0, torch.float8_e4m3fn), (57344.0, torch.float8_e5m2))
    return [torch.tensor([value]).to(dtype).to("hpu").cpu().float().item() for value, dtype in values]


@assume(
    source="Intel's table of dtypes: bool is stored in int8",
    expected=["torch.bool", [False, True]],
    means={"hpu-core": "masks would come back as numbers."},
)
def bool_survives() -> object:
    """A mask is bool on the card and after a copy back."""
    mask = torch.tensor([1.0, -1.0]).to("hpu") < 0
    return [str(mask.dtype), mask.cpu().tolist()]


@assume(
    source=BRIDGE + "backend/helpers/cast_sequence.cpp",
    expected=[-2, 2],
    means={"hpu-bucketing": "boundaries that are computed on the card would be off by one."},
)
def casts_to_int_truncate() -> object:
    """A cast of float32 to int32 drops the fraction, also of negative numbers."""
    return torch.tensor([-2.7, 2.7]).to("hpu").to(torch.int32).cpu().tolist()


@assume(
    source="torch's rule, which the vendor's casts follow",
    expected="torch.float32",
    means={"hpu-core": "losses of mixed operands would have another dtype than on the CPU."},
)
def promotion_is_that_of_torch() -> object:
    """The sum of int32 and float32 tensors is float32."""
    return str((torch.ones(2, dtype=torch.int32, device="hpu") + torch.ones(2, device="hpu")).dtype)
