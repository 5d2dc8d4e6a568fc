"""Memory of a card: statistics, when memory is committed, and how it runs out."""

import functools

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, at_least, contains
from hpu_doctor.verify.register._tools import BRIDGE, attach, hpu

SUBJECT = Subject("Memory of a card")
assume = SUBJECT.assume

_GIB = 1 << 30


@assume(
    source=BRIDGE + "hpu/csrc/bindings.cpp:211-228",
    expected="Limit InUse MaxInUse NumAllocs NumFrees ActiveAllocs MaxAllocSize TotalSystemAllocs TotalSystemFrees "
    "TotalActiveAllocs",
    means={
        "hpu-core": "`telemetry` and `get_device_stats` would lack columns.",
        "hpu-profiler": "its memory columns would be empty.",
        "hpu-deepspeed": "ZeRO's report of memory would fail.",
    },
)
def memory_stats_keys() -> object:
    """`memory_stats()` has ten statistics, in this order."""
    return " ".join(bridge.memory_stats())


def _is_statistic(function: str, name: str) -> bool:
    return bool(getattr(hpu(), function)() == bridge.memory_stats()[name])


def _adds_up() -> bool:
    kept = [torch.ones(1 << 10, device="hpu") for _ in range(3)]
    del kept[0]
    hpu().synchronize()
    stats = bridge.memory_stats()
    return stats["ActiveAllocs"] == stats["NumAllocs"] - stats["NumFrees"]


def _free_and_total() -> bool:
    hpu().init()
    stats = bridge.memory_stats()
    return list(hpu().mem_get_info()) == [stats["Limit"] - stats["InUse"], stats["Limit"]]


SUBJECT.table(
    "allocated-and-reserved",
    "Functions of memory are statistics: InUse, MaxInUse, Limit, and Limit less InUse; ActiveAllocs is NumAllocs less "
    "NumFrees.",
    {
        "memory_allocated": (True, functools.partial(_is_statistic, "memory_allocated", "InUse")),
        "max_memory_allocated": (True, functools.partial(_is_statistic, "max_memory_allocated", "MaxInUse")),
        "memory_reserved": (True, functools.partial(_is_statistic, "memory_reserved", "Limit")),
        "mem_get_info": (True, _free_and_total),
        "ActiveAllocs": (True, _adds_up),
    },
    source=BRIDGE + "hpu/memory.py:153-180",
    means={
        "hpu-core": "`telemetry` would report reserved memory as if it were used.",
        "hpu-deepspeed": "DeepSpeed's free memory would be wrong.",
        "hpu-profiler": "counts of allocations would not add up.",
        "hpu-sim": "plans would compare with the wrong figure.",
    },
)

for _generation, _number, _source in (
    ("GAUDI2", 96, "Gaudi 2 white paper 839363: 96 GB; hl-smi shows 98304 MiB"),
    ("GAUDI3", 128, "Intel white paper 817486: 128 GB"),
):
    SUBJECT.add(
        f"limit-of-{_generation.lower()}",
        f"The pool of a {_generation} has nearly all of its {_number} GiB.",
        lambda: bridge.memory_stats()["Limit"],
        source=_source,
        expected=at_least(0.85 * _number * _GIB),
        generations=(_generation,),
        means={"hpu-sim": "a plan would say that a job fits in memory that a card does not give."},
    )


@assume(
    source="optimum-habana#1134; accelerate utils/memory.py:112; " + BRIDGE + "device_memory.cpp:1060-1065",
    expected=[True, contains("Allocation")],
    mode="eager",
    means={
        "hpu-core": "Lightning's batch size finder would not recognize that memory ran out.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def out_of_memory_text() -> object:
    """Too large a tensor raises a RuntimeError with a known text, at the latest when the card is waited for."""
    try:
        torch.empty(bridge.memory_stats()["Limit"] + _GIB, dtype=torch.uint8, device="hpu").fill_(1)
        hpu().synchronize()
    except RuntimeError as error:
        return [bridge.is_out_of_memory(error), str(error)]
    return "no error"


@assume(
    source=BRIDGE + "hpu/memory.py, memory_summary and _extended_memory_summary_dict",
    expected=[contains("HPU"), []],
    means={
        "hpu-core": "the table in a message would be missing.",
        "hpu-sim": "the workspace of a plan could not be compared with a card's.",
    },
)
def summary_is_a_table() -> object:
    """`memory_summary()` is a table as text, and the extended one has the workspace."""
    summary = str(hpu().memory_summary())
    attach("memory-summary.txt", summary)
    extended = hpu()._extended_memory_summary_dict()  # noqa: SLF001 - the bridge has no public name for it.
    names = ("workspace", "persistent", "max_cntgs_chunk", "last_workspace")
    return [summary, [name for name in names if name not in extended]]
