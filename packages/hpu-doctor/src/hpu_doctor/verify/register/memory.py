"""Memory of a card: statistics, when memory is committed, and how it runs out."""

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
