"""Memory of a card: statistics, when memory is committed, and how it runs out."""

import functools

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, contains
from hpu_doctor.verify.register._tools import BRIDGE, hpu

SUBJECT = Subject("Memory of a card")
assume = SUBJECT.assume

_GIB = 1 << 30


@assume(
    source=BRIDGE + "hpu/csrc/bindings.cpp:211-228",
    expected="Limit InUse MaxInUse NumAllocs NumFrees ActiveAllocs MaxAllocSize TotalSystemAllocs TotalSystemFrees "
    "TotalActiveAllocs",
    means={
        "hpu-core": "`DeviceStatsMonitor` would lack columns.",
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
        "hpu-core": "`DeviceStatsMonitor` would report reserved memory as if it were used.",
        "hpu-deepspeed": "DeepSpeed's free memory would be wrong.",
        "hpu-profiler": "counts of allocations would not add up.",
        "hpu-sim": "plans would compare with the wrong figure.",
    },
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
