"""Rules of the traces that the published bridge (1.19.0) writes, as checks of any writer's output.

Each table is stated once here. Releases after 1.19 are not published: what they write is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

JsonEvent = dict[str, Any]

DEVICE_NAME = "/device:HPU:0"
DEVICE_SORT_INDEX = 16777216
ALWAYS = frozenset({"recipeId", "recipeName", "streamHandle", "eventHandle", "dataType"})
#: What is added to the process id of the system for each log of the host.
LOGS = {"Synapse Logger": 10000, "Bridge Logs": 20000, "Memory Logs": 30000}


class Lane(NamedTuple):
    """Row of the table of lanes: prefix of the engine's header, base of the thread ids, whether all are kernels."""

    header: str
    base: int
    runs_kernels: bool = False


LANES = (
    Lane("**DMA ", 0),
    Lane("**MME ", 1000, runs_kernels=True),
    Lane("**TPC ", 2000, runs_kernels=True),
    Lane("*PDMA", 3000),
    Lane("*EDMA ", 4000),
    Lane("*KDMA", 5000),
    Lane("*MME ", 6000, runs_kernels=True),
    Lane("*TPC ", 7000, runs_kernels=True),
    Lane("*PSOC", 8000),
    Lane("*SM", 9000),
    Lane("*PMMU", 10000),
    Lane("*ROTATOR", 11000),
    Lane("*ARC_FARM", 12000),
    Lane("*VIDEO_DECODER", 13000),
    Lane("*NIC ", 14000),
    Lane("**NIC ", 17000),
)


def category(lane: Lane | None, name: str) -> str:
    """Return the category of an event of an engine; of the host's calls without a lane."""
    if (lane is not None and lane.runs_kernels) or name == "DmaTranspose":
        return "Kernel"
    return "Memcpy" if name.startswith("memcpy") else "Memset" if name.startswith("memset") else "Runtime"


def violations(events: Iterable[JsonEvent]) -> list[str]:
    """Return a message for each rule that an event of the card, or a call of the host, breaks."""
    events = list(events)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    sort_indices = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    found = []
    if processes.get(0) != DEVICE_NAME or sort_indices.get(0) != DEVICE_SORT_INDEX:
        found.append(f"process 0 is {processes.get(0)!r} with sort index {sort_indices.get(0)}")
    found += [
        f"lane without sort index -1: {e}"
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_sort_index" and e["args"] != {"sort_index": -1}
    ]
    for event in events:
        if event["ph"] == "X":
            lane_name = names.get((event["pid"], event["tid"]))
            found += _complete(event, lane_name, is_device=event["pid"] == 0, is_named=event["pid"] in processes)
    return found


def _complete(event: JsonEvent, lane_name: str | None, *, is_device: bool, is_named: bool) -> list[str]:
    lane = next((row for row in LANES if row.base // 1000 == event["tid"] // 1000), None) if is_device else None
    found = []
    if lane_name is None or (is_device and lane is None):
        found.append(f"no lane: {event}")
    if not is_device and (is_named or not str(lane_name).startswith("Synapse/")):
        found.append(f"not a lane of the host's calls: {event}")
    if event["cat"] != category(lane, event["name"]):
        found.append(f"category is not {category(lane, event['name'])}: {event}")
    if "write to mem" in event["name"] or event["dur"] < 0 or event["ts"] < 0:
        found.append(f"event that the bridge leaves out: {event}")
    arguments = event.get("args", {})
    if not arguments.keys() >= ALWAYS or not isinstance(arguments["recipeId"], int):
        found.append(f"arguments are missing: {event}")
    if not all(str(arguments.get(key, "")).startswith("0x") for key in ("streamHandle", "eventHandle")):
        found.append(f"handle is not a hexadecimal text: {event}")
    if ("device" in arguments) is not (event["cat"] == "Kernel") or arguments.get("device", 0) != 0:
        found.append(f"device is not that of a kernel: {event}")
    others = arguments.keys() - ALWAYS - {"device"}
    found += [
        f"extra argument {key!r} is not a text: {event}"
        for key in others
        if not isinstance(arguments[key], str) or not arguments[key]
    ]
    if others & {"correlation", "External id"}:
        found.append(f"there is no correlation: {event}")
    return found
