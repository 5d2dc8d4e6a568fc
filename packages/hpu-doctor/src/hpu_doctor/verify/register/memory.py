"""Memory of a card: statistics, when memory is committed, and how it runs out."""

import warnings

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import AtLeast, Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, attach, error_of, hpu, opens_card

SUBJECT = Subject("Memory of a card")
assume = SUBJECT.assume

_MIB = 1 << 20
_GIB = 1 << 30


@assume(
    source=BRIDGE + "hpu/csrc/bindings.cpp:211-228",
    expected=[
        "Limit",
        "InUse",
        "MaxInUse",
        "NumAllocs",
        "NumFrees",
        "ActiveAllocs",
        "MaxAllocSize",
        "TotalSystemAllocs",
        "TotalSystemFrees",
        "TotalActiveAllocs",
    ],
    means={
        "hpu-core": "`telemetry` and `get_device_stats` would lack columns.",
        "hpu-profiler": "its memory columns would be empty.",
        "hpu-deepspeed": "ZeRO's report of memory would fail.",
    },
)
def memory_stats_keys() -> object:
    """`memory_stats()` has ten statistics, in this order."""
    return list(bridge.memory_stats())


@assume(
    source=BRIDGE + "hpu/memory.py",
    expected=True,
    means={"hpu-profiler": "counts of allocations would not add up."},
)
def active_allocations_add_up() -> object:
    """ActiveAllocs is NumAllocs less NumFrees."""
    kept = [torch.ones(1 << 10, device="hpu") for _ in range(3)]
    del kept[0]
    hpu().synchronize()
    stats = bridge.memory_stats()
    return stats["ActiveAllocs"] == stats["NumAllocs"] - stats["NumFrees"]


@assume(
    source=BRIDGE + "hpu/memory.py:153-180",
    expected=[True, True, True],
    means={
        "hpu-core": "`telemetry` would report reserved memory as if it were used.",
        "hpu-sim": "plans would compare with the wrong figure.",
    },
)
def allocated_and_reserved() -> object:
    """`memory_allocated`, `max_memory_allocated` and `memory_reserved` are InUse, MaxInUse and Limit."""
    hpu().init()
    stats = bridge.memory_stats()
    values = {"InUse": "memory_allocated", "MaxInUse": "max_memory_allocated", "Limit": "memory_reserved"}
    return [getattr(hpu(), function)() == stats[name] for name, function in values.items()]


@assume(
    source=BRIDGE + "hpu/memory.py",
    expected=True,
    means={"hpu-deepspeed": "DeepSpeed's free memory would be wrong."},
)
def mem_get_info_is_free_and_total() -> object:
    """`mem_get_info()` is Limit less InUse, and Limit."""
    hpu().init()
    stats = bridge.memory_stats()
    return list(hpu().mem_get_info()) == [stats["Limit"] - stats["InUse"], stats["Limit"]]


@assume(
    source="Gaudi 2 white paper 839363: 96 GB; hl-smi shows 98304 MiB",
    expected=AtLeast(0.85 * 96 * _GIB),
    generations=("GAUDI2",),
    means={"hpu-sim": "a plan would say that a job fits in memory that a card does not give."},
)
def limit_of_gaudi2() -> object:
    """The pool of a Gaudi 2 has nearly all of its 96 GiB."""
    return bridge.memory_stats()["Limit"]


@assume(
    source="Intel white paper 817486: 128 GB",
    expected=AtLeast(0.85 * 128 * _GIB),
    generations=("GAUDI3",),
    means={"hpu-sim": "a plan would say that a job fits in memory that a card does not give."},
)
def limit_of_gaudi3() -> object:
    """The pool of a Gaudi 3 has nearly all of its 128 GiB."""
    return bridge.memory_stats()["Limit"]


@assume(
    source=BRIDGE + "hpu/memory.py, hpu.init()",
    expected=[True, True],
    means={"hpu-core": "statistics could be read in the launching process."},
)
def memory_functions_open_the_card() -> object:
    """Functions of memory open the card."""
    return [opens_card(hpu().memory_allocated), bridge.is_open()]


@assume(
    source=BRIDGE + "hpu/memory.py, reset_peak_memory_stats",
    expected=[True, True],
    means={"hpu-core": "peaks of an epoch would have those of earlier ones.", "hpu-profiler": "as in hpu-core."},
)
def peak_can_be_reset() -> object:
    """`reset_peak_memory_stats()` sets MaxInUse to InUse."""
    large = torch.ones(64 * _MIB, dtype=torch.uint8, device="hpu")
    hpu().synchronize()
    del large
    hpu().synchronize()
    before = bridge.memory_stats()
    hpu().reset_peak_memory_stats()
    after = bridge.memory_stats()
    return [before["MaxInUse"] - before["InUse"] >= 64 * _MIB, after["MaxInUse"] == after["InUse"]]


@assume(
    source=BRIDGE + "backend/synapse_helpers/device_memory.cpp:322-341,934-993",
    expected=[True, True],
    means={
        "hpu-core": "the memory that a module frees would stay in use.",
        "hpu-sim": "its peaks would be too low.",
    },
)
def used_tensor_counts_until_it_is_freed() -> object:
    """A tensor that was written counts in InUse with its size, and not after it was deleted."""
    hpu().synchronize()
    start = bridge.memory_stats()["InUse"]
    tensor = torch.ones(64 * _MIB, dtype=torch.uint8, device="hpu")
    hpu().synchronize()
    used = bridge.memory_stats()["InUse"] - start
    del tensor
    hpu().synchronize()
    left = bridge.memory_stats()["InUse"] - start
    # The pool rounds up, and may hand out a chunk that is up to a tenth larger.
    return [64 * _MIB <= used <= 72 * _MIB, left < 8 * _MIB]


@assume(
    source=BRIDGE + "backend/synapse_helpers/device_memory.cpp:322-341",
    expected=[True, True],
    simulator="strict",
    means={
        "hpu-sim": "peaks of plans would leave out tensors that are never written.",
        "hpu-fsdp": "empty parameters would cost memory before they are gathered.",
    },
)
def empty_tensor_takes_no_memory() -> object:
    """`torch.empty` takes no memory; the first write of the tensor does."""
    hpu().synchronize()
    start = bridge.memory_stats()["InUse"]
    tensor = torch.empty(256 * _MIB, dtype=torch.uint8, device="hpu")
    hpu().synchronize()
    untouched = bridge.memory_stats()["InUse"] - start
    tensor.fill_(1)
    hpu().synchronize()
    return [untouched < _MIB, bridge.memory_stats()["InUse"] - start >= 256 * _MIB]


@assume(
    source="optimum-habana#1134; accelerate utils/memory.py:112; " + BRIDGE + "device_memory.cpp:1060-1065",
    expected=[True, Contains("Allocation")],
    mode="eager",
    means={
        "hpu-core": "Lightning's batch size finder would not recognize that memory ran out.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def out_of_memory_text() -> object:
    """Too large a tensor raises a RuntimeError with a known text, at the latest when the card is waited for."""
    error = _exhaust(bridge.memory_stats()["Limit"] + _GIB)
    return [error is not None and bridge.is_out_of_memory(error), str(error)]


@assume(
    source=BRIDGE + "backend/synapse_helpers/device_memory.cpp:322-341,934-993",
    expected="no error",
    mode="eager",
    simulator="strict",
    means={"hpu-sim": "the line that it names for exhausted memory would be another one than a card's."},
)
def out_of_memory_is_late() -> object:
    """`torch.empty` of more than all memory raises nothing; the first use does."""
    size = bridge.memory_stats()["Limit"] + _GIB
    return error_of(lambda: torch.empty(size, dtype=torch.uint8, device="hpu"))


@assume(
    source=BRIDGE + "hpu/memory.py, memory_summary",
    expected=Contains("HPU"),
    means={"hpu-core": "the table in a message would be missing."},
)
def summary_is_a_table() -> object:
    """`memory_summary()` is a table as text."""
    summary = str(hpu().memory_summary())
    attach("memory-summary.txt", summary)
    return summary


@assume(
    source=BRIDGE + "hpu/memory.py, _extended_memory_summary_dict",
    expected=[
        "active_allocs",
        "future",
        "in_use",
        "last_workspace",
        "limit",
        "max_alloc_size",
        "max_cntgs_chunk",
        "max_in_use",
        "num_allocs",
        "num_free",
        "persistent",
        "workspace",
    ],
    means={"hpu-sim": "the workspace of a plan could not be compared with a card's."},
)
def extended_summary_keys() -> object:
    """`_extended_memory_summary_dict()` tells workspace and largest free chunk."""
    return sorted(hpu()._extended_memory_summary_dict())  # noqa: SLF001 - the bridge has no public name for it.


@assume(
    source=BRIDGE + "hpu/memory.py, FutureWarning",
    expected=["FutureWarning"],
    means={"hpu-compat": "the old name would not warn."},
)
def memory_cached_is_deprecated() -> object:
    """`memory_cached()` warns that it is deprecated."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hpu().memory_cached()
    return [warning.category.__name__ for warning in caught]


@assume(
    source=BRIDGE + "hpu/memory.py, reset_accumulated_memory_stats",
    expected=True,
    means={"hpu-profiler": "counts of allocations would be those since the start of the process."},
)
def counts_can_be_reset() -> object:
    """`reset_accumulated_memory_stats()` clears the counts of allocations."""
    kept = [torch.ones(1 << 12, device="hpu") for _ in range(8)]
    hpu().synchronize()
    before = bridge.memory_stats()["NumAllocs"]
    hpu().reset_accumulated_memory_stats()
    return len(kept) == 8 and bridge.memory_stats()["NumAllocs"] < before  # noqa: PLR2004 - see above.


def _exhaust(size: int) -> BaseException | None:
    try:
        tensor = torch.empty(size, dtype=torch.uint8, device="hpu")
        tensor.fill_(1)
        hpu().synchronize()
    except RuntimeError as error:
        return error
    return None
