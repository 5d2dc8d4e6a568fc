"""Profiler: its switches, and each row of the bridge's trace writer, as published for 1.19."""

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hpu_doctor.verify.assumption import AtLeast, Contains, Matches, NotTriedError, Subject
from hpu_doctor.verify.register._tools import BRIDGE, LATER, attach, error_of, hpu

SUBJECT = Subject("Profiler", quick=False, mode="eager", seconds=120)
assume = SUBJECT.assume
# No later source of the writer is published.
assume_to_1_19 = functools.partial(assume, releases="<=1.19")

_WRITER = BRIDGE + "backend/profiling/trace_sources/trace_parser.cpp:"
_DEVICE = "/device:HPU:0"


def _trace(**options: Any) -> dict[str, Any]:
    """Return the exported trace of a few operators and copies."""
    activity = torch.profiler.ProfilerActivity
    weights = torch.ones(64, 64, device="hpu")
    with torch.profiler.profile(activities=[activity.CPU, activity.HPU], **options) as profile:
        for _ in range(3):
            inputs = torch.ones(64, 64).to("hpu")
            torch.relu(inputs @ weights).sum().cpu()
        hpu().synchronize()
    profile.export_chrome_trace("trace.json")
    text = Path("trace.json").read_text(encoding="utf-8")
    attach("trace.json", text)
    trace: dict[str, Any] = json.loads(text)
    return trace


def _device_pids(trace: Mapping[str, Any]) -> set[Any]:
    return {
        event["pid"]
        for event in trace["traceEvents"]
        if event.get("name") == "process_name" and event["args"].get("name") == _DEVICE
    }


def _device_events(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    pids = _device_pids(trace)
    return [event for event in trace["traceEvents"] if event.get("ph") == "X" and event.get("pid") in pids]


def _kernels(trace: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = [event for event in _device_events(trace) if event.get("cat") == "Kernel"]
    if not found:
        raise NotTriedError("the trace has no event of the category Kernel")
    return found


@assume_to_1_19(
    source=BRIDGE + "activity_profiler/activity_profiler.py:56-62,111-114",
    expected={"CPU": 1, "CUDA": 2, "HPU": 3},
    quick=True,
    means={"hpu-profiler": "activities that were imported before the bridge would be recorded."},
)
def activity_is_an_enum() -> object:
    """`torch.profiler.ProfilerActivity` is an enum of the bridge."""
    return {activity.name: activity.value for activity in torch.profiler.ProfilerActivity}


@assume(
    source=LATER + "PT_PYTORCH_PROFILER_USE_KINETO, true by default",
    expected="torch._C._profiler",
    releases=">=1.20",
    quick=True,
    means={"hpu-profiler": "the order of imports would matter, and its check of it was dropped."},
)
def activity_is_that_of_torch() -> object:
    """`torch.profiler.ProfilerActivity` is torch's own."""
    return torch.profiler.ProfilerActivity.__module__


@assume_to_1_19(
    source=BRIDGE + "backend/profiling/trace_sources/synapse_profiler_source.cpp:53-63",
    expected=Contains("Tensorboard callback for HPU hardware profiling disabled"),
    quick=True,
    means={
        "hpu-profiler": "its own error for HABANA_PROFILE=0 would refuse what works.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def habana_profile_0_is_an_error() -> object:
    """With HABANA_PROFILE=0 creating a profile is an error, even of the CPU alone."""
    os.environ["HABANA_PROFILE"] = "0"
    return error_of(lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]))


@assume(
    source=BRIDGE + "backend/profiling/json_file_parser.cpp:118-146; trace_sources/trace_parser.cpp:235-236",
    expected=[0],
    means={
        "hpu-profiler": "the reader would find no device, and the report would say that the card was idle.",
    },
)
def device_process_is_0() -> object:
    """An exported trace has the process "/device:HPU:0" with the number 0."""
    return sorted(_device_pids(_trace()))


@assume(
    source=BRIDGE + "backend/profiling/json_file_parser.cpp:195-221",
    expected=[True, True],
    means={"hpu-profiler": "the generation and memory of the report would be unknown."},
)
def trace_has_device_properties() -> object:
    """An exported trace has the name and memory of the card in deviceProperties."""
    properties = _trace().get("deviceProperties", [])
    return [any(name in entry for entry in properties) for name in ("name", "totalGlobalMem")]


@assume_to_1_19(
    source=_WRITER + "395-406",
    expected=[],
    means={"hpu-profiler": "events of an unknown category would be left out of every sum."},
)
def categories_of_device_events() -> object:
    """The categories of the card's events are Kernel, Runtime, Memcpy and Memset."""
    known = {"Kernel", "Runtime", "Memcpy", "Memset"}
    events = _device_events(_trace())
    if not events:
        raise NotTriedError("the trace has no event of the card")
    return sorted({str(event.get("cat")) for event in events} - known)


@assume_to_1_19(
    source=_WRITER + "88-105,147-155,388-393",
    expected=True,
    means={"hpu-profiler": "compute would be counted as overhead."},
)
def kernels_are_on_engines() -> object:
    """Kernels but transposes by DMA are on lanes of matrix and vector engines: 1000 to 2999 or 6000 to 7999."""
    lanes = [event["tid"] for event in _kernels(_trace()) if event["name"] != "DmaTranspose"]
    return all(1000 <= lane < 3000 or 6000 <= lane < 8000 for lane in lanes)  # noqa: PLR2004 - see above.


@assume_to_1_19(
    source=_WRITER + "282-294,408-438",
    expected=["dataType", "device", "eventHandle", "recipeId", "recipeName", "streamHandle"],
    means={"hpu-profiler": "kernels could not be grouped by recipe, and compilations not be told apart."},
)
def kernel_arguments() -> object:
    """Every kernel has recipeId, recipeName, streamHandle, eventHandle, dataType and device."""
    names = set.intersection(*(set(event["args"]) for event in _kernels(_trace())))
    expected = ("dataType", "device", "eventHandle", "recipeId", "recipeName", "streamHandle")
    return [name for name in expected if name in names]


@assume_to_1_19(
    source=_WRITER + "282-294; backend/profiling/profiling.h:48-53",
    expected=["int", "str", "int"],
    means={"hpu-profiler": "the reader would take handles for numbers."},
)
def types_of_kernel_arguments() -> object:
    """recipeId is a number, streamHandle a text in hexadecimal, device the number 0."""
    arguments = _kernels(_trace())[0]["args"]
    return [type(arguments[name]).__name__ for name in ("recipeId", "streamHandle", "device")]


@assume_to_1_19(
    source=_WRITER + "53-87,123-127",
    expected=True,
    means={"hpu-profiler": "copies would be missing, and waits for them unexplained."},
)
def copies_are_on_dma_lanes() -> object:
    """DMA lanes, 0 to 999 or 3000 to 5999, have copies, as Memcpy, Memset or Runtime, and transposes, as Kernel."""
    lanes = [event for event in _device_events(_trace()) if event["tid"] < 1000 or 3000 <= event["tid"] < 6000]  # noqa: PLR2004 - see above.
    return bool(lanes) and all(event["cat"] in {"Memcpy", "Memset", "Runtime", "Kernel"} for event in lanes)


@assume_to_1_19(
    source=_WRITER + "184-191,235-258",
    expected=[AtLeast(1), True],
    means={"hpu-profiler": "lanes would have no names in its pages."},
)
def lanes_have_names() -> object:
    """Each lane with events of the card has a name."""
    trace = _trace()
    pids = _device_pids(trace)
    named = {
        event["tid"]
        for event in trace["traceEvents"]
        if event.get("name") == "thread_name" and event.get("pid") in pids
    }
    return [len(named), {event["tid"] for event in _device_events(trace)} <= named]


@assume_to_1_19(
    source=BRIDGE + "backend/profiling/json_file_parser.cpp:75 and scripts/env_flags.yaml:648-651",
    expected=0,
    means={"hpu-profiler": "arrows from operators to kernels would be there without an option."},
)
def no_flows_by_default() -> object:
    """Without PT_TB_ENABLE_FLOW_EVENTS a trace has no flow from an enqueue to its kernel."""
    return sum(event.get("cat") == "enqueue" for event in _trace()["traceEvents"])


@assume_to_1_19(
    source=BRIDGE + "activity_profiler/activity_profiler.py:35-38; synapse_profiler_source.cpp:156-161",
    expected=[True, False],
    means={"hpu-profiler": "a second export would count events twice, or the first would have none."},
)
def second_export_is_empty() -> object:
    """A second export of a profile has no events of the card."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.HPU]) as profile:
        torch.ones(64, 64, device="hpu").sum().cpu()
    profile.export_chrome_trace("first.json")
    # Some torches refuse a second export, which has no events then either.
    error_of(lambda: profile.export_chrome_trace("second.json"))
    return [
        Path(name).exists() and bool(_device_events(json.loads(Path(name).read_text(encoding="utf-8"))))
        for name in ("first.json", "second.json")
    ]


@assume(
    source=BRIDGE + "activity_profiler/activity_profiler.py:111-121, device events never become Kineto's",
    expected=False,
    means={"hpu-profiler": "`summary` could show times of the card from torch's own events."},
)
def torch_has_no_device_events() -> object:
    """`key_averages()` has no time of the card."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.HPU]) as profile:
        torch.ones(64, 64, device="hpu").sum().cpu()
    return any(str(event.device_type).rpartition(".")[2] == "HPU" for event in profile.events() or ())


@assume_to_1_19(
    source=BRIDGE + "backend/profiling/trace_sources/memory_source.cpp:44-62",
    expected=["Addr", "Bytes", "Device Id", "Device Type", "Profiler Event Index", "Total Allocated", "Total Reserved"],
    simulator="hardware",
    reason="its writer has no memory instants",
    means={"hpu-profiler": "the curve of memory would be missing."},
)
def memory_instants() -> object:
    """With profile_memory=True each allocation is an instant with seven arguments."""
    events = [event for event in _trace(profile_memory=True)["traceEvents"] if event.get("name") == "[memory]"]
    own = [event for event in events if event["args"].get("Device Type") not in {0, None}]
    return sorted(own[0]["args"]) if own else "no instants"


@assume_to_1_19(
    source=BRIDGE + "backend/profiling/trace_sources/bridge_logs_source.cpp:61-96",
    expected=True,
    simulator="hardware",
    reason="its bridge has no C++ functions to record",
    means={"hpu-profiler": "launches of graphs on the host could not be seen."},
)
def bridge_logs_lane() -> object:
    """A trace has the process "Bridge Logs" with launches of graphs."""
    names = {str(event.get("args", {}).get("name")) for event in _trace()["traceEvents"] if event.get("ph") == "M"}
    return "Bridge Logs" in names


@assume(
    source=_WRITER + "373-380; json_file_parser.cpp:32-41",
    expected=True,
    means={"hpu-profiler": "negative times would break its sums."},
)
def times_are_not_negative() -> object:
    """Times and durations of the card's events are not negative."""
    return all(event["ts"] >= 0 and event["dur"] >= 0 for event in _device_events(_trace()))


@assume(
    source=BRIDGE + "activity_profiler/activity_profiler.py, tensorboard_trace_handler",
    expected=Matches(r".*\.pt\.trace\.json(\.gz)?"),
    means={"hpu-profiler": "the folder of a run would have no file that the report finds."},
)
def handler_names_the_file() -> object:
    """`tensorboard_trace_handler` writes a file with the ending .pt.trace.json."""
    handler = torch.profiler.tensorboard_trace_handler("traces")
    with torch.profiler.profile(on_trace_ready=handler):
        torch.ones(4, device="hpu").sum().cpu()
    (file,) = Path("traces").iterdir()
    return file.name
