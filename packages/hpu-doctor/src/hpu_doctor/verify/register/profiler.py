"""Profiler: its switches, and the bridge's trace writer, as published for 1.19."""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hpu_doctor.verify.assumption import NotTriedError, Subject, contains, error_of, matches
from hpu_doctor.verify.register._tools import BRIDGE, attach, hpu

SUBJECT = Subject("Profiler", quick=False, mode="eager", seconds=120)
assume = SUBJECT.assume

_WRITER = BRIDGE + "backend/profiling/trace_sources/trace_parser.cpp:"
_DEVICE = "/device:HPU:0"
_ARGUMENTS = {
    "recipeId": int,
    "recipeName": str,
    "streamHandle": str,
    "eventHandle": object,
    "dataType": object,
    "device": int,
}


def _activities() -> list[Any]:
    return [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.HPU]


@functools.cache
def _trace(**options: Any) -> list[dict[str, Any]]:
    """Return the events of an exported trace of a few operators and copies; its properties are one more event."""
    weights = torch.ones(64, 64, device="hpu")
    with torch.profiler.profile(activities=_activities(), **options) as profile:
        for _ in range(3):
            inputs = torch.ones(64, 64).to("hpu")
            torch.relu(inputs @ weights).sum().cpu()
        hpu().synchronize()
    profile.export_chrome_trace("trace.json")
    text = Path("trace.json").read_text(encoding="utf-8")
    attach("trace.json", text)
    trace: dict[str, Any] = json.loads(text)
    return [*trace["traceEvents"], {"deviceProperties": trace.get("deviceProperties", [])}]


def _device_pids(events: list[dict[str, Any]]) -> set[Any]:
    names = (event for event in events if event.get("name") == "process_name")
    return {event["pid"] for event in names if event["args"].get("name") == _DEVICE}


def _of_device(events: list[dict[str, Any]], is_lane: Callable[[int], bool] = bool) -> list[dict[str, Any]]:
    """Return the events of the card, or those of lanes."""
    pids = _device_pids(events)
    found = [event for event in events if event.get("ph") == "X" and event.get("pid") in pids]
    if not found:
        raise NotTriedError("the trace has no event of the card")
    return found if is_lane is bool else [event for event in found if is_lane(event["tid"])]


def _kernels() -> list[dict[str, Any]]:
    found = [event for event in _of_device(_trace()) if event.get("cat") == "Kernel"]
    if not found:
        raise NotTriedError("the trace has no event of the category Kernel")
    return found


def _is_dma(lane: int) -> bool:
    return lane < 1000 or 3000 <= lane < 6000  # noqa: PLR2004 - as the writer numbers them.


def _is_engine(lane: int) -> bool:
    return 1000 <= lane < 3000 or 6000 <= lane < 8000  # noqa: PLR2004 - as above.


def _has_named_lanes() -> bool:
    events, pids = _trace(), _device_pids(_trace())
    named = {event["tid"] for event in events if event.get("name") == "thread_name" and event.get("pid") in pids}
    return bool(named) and {event["tid"] for event in _of_device(events)} <= named


def _has_arguments() -> bool:
    return all(isinstance(event["args"].get(name), kind) for event in _kernels() for name, kind in _ARGUMENTS.items())


def _categories() -> list[str]:
    known = {"Kernel", "Runtime", "Memcpy", "Memset"}
    return sorted({str(event.get("cat")) for event in _of_device(_trace())} - known)


SUBJECT.table(
    "trace-of-the-card",
    'An exported trace has the process "/device:HPU:0" with the number 0, name and memory of the card in '
    "deviceProperties, and no negative times.",
    {
        "process": ([0], lambda: sorted(_device_pids(_trace()))),
        "deviceProperties": (
            [True, True],
            lambda: [
                any(name in each for each in _trace()[-1]["deviceProperties"]) for name in ("name", "totalGlobalMem")
            ],
        ),
        "times": (True, lambda: all(event["ts"] >= 0 and event["dur"] >= 0 for event in _of_device(_trace()))),
    },
    source=BRIDGE + "backend/profiling/json_file_parser.cpp:118-146,195-221; trace_sources/trace_parser.cpp:235-236",
    means={"hpu-profiler": "the reader would find no device, and the report would say that the card was idle."},
)
# No later source of the writer is published.
SUBJECT.table(
    "trace-to-1-19",
    "Categories of the card's events are Kernel, Runtime, Memcpy and Memset; kernels but transposes by DMA are on "
    "lanes of engines, 1000 to 2999 or 6000 to 7999, with six arguments; DMA lanes have copies; lanes have names; "
    "there are no flows.",
    {
        "other categories": ([], _categories),
        "kernels on engines": (
            True,
            lambda: all(_is_engine(event["tid"]) for event in _kernels() if event["name"] != "DmaTranspose"),
        ),
        "arguments of kernels": (True, _has_arguments),
        "copies on DMA lanes": (
            [True, []],
            lambda: [
                bool(lanes := _of_device(_trace(), _is_dma)),
                sorted({event["cat"] for event in lanes} - {"Memcpy", "Memset", "Runtime", "Kernel"}),
            ],
        ),
        "named lanes": (True, _has_named_lanes),
        "flows": (0, lambda: sum(event.get("cat") == "enqueue" for event in _trace())),
    },
    source=_WRITER + "53-127,147-191,235-294,388-438; json_file_parser.cpp:75; scripts/env_flags.yaml:648-651",
    releases="<=1.19",
    means={"hpu-profiler": "compute, copies or compilations would be missing from its sums, or its pages lack names."},
)


@assume(
    source=BRIDGE + "backend/profiling/trace_sources/synapse_profiler_source.cpp:53-63",
    expected=contains("Tensorboard callback for HPU hardware profiling disabled"),
    releases="<=1.19",
    quick=True,
    means={
        "hpu-profiler": "its own error for HABANA_PROFILE=0 would refuse what works.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def habana_profile_0_is_an_error() -> object:
    """With HABANA_PROFILE=0 creating a profile is an error, even of the CPU alone."""
    os.environ["HABANA_PROFILE"] = "0"
    return error_of(lambda: torch.profiler.profile(activities=_activities()[:1]))


@assume(
    source=BRIDGE
    + "activity_profiler/activity_profiler.py, tensorboard_trace_handler; device events never become Kineto's",
    expected=[False, matches(r".*\.pt\.trace\.json(\.gz)?")],
    means={
        "hpu-profiler": "`summary` could show times of the card from torch's own events, or the report find no file."
    },
)
def torch_has_no_device_events() -> object:
    """`key_averages()` has no time of the card, and `tensorboard_trace_handler` writes a file .pt.trace.json."""
    handler = torch.profiler.tensorboard_trace_handler("traces")
    with torch.profiler.profile(activities=_activities(), on_trace_ready=handler) as profile:
        torch.ones(64, 64, device="hpu").sum().cpu()
    (file,) = Path("traces").iterdir()
    return [any(str(event.device_type).endswith(".HPU") for event in profile.events() or ()), file.name]
