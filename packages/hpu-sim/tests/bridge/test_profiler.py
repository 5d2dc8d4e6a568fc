"""Hpu activity in torch.profiler."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not hasattr(ProfilerActivity, "HPU"), reason="this torch has no name for hpu activity; it came with 2.7"
)


def _trace(path: Path) -> dict[str, Any]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace: dict[str, Any] = json.load(file)
    return trace


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_names_the_device(name: str, tmp_path: Path) -> None:
    """It says "simulated", and where the times were measured."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.HPU]) as recorded:
        torch.ones(3, 3, device="hpu").sin()

    recorded.export_chrome_trace(str(tmp_path / name))

    trace = _trace(tmp_path / name)
    card = trace["deviceProperties"][-1]
    metadata = {e["name"]: e["args"] for e in trace["traceEvents"] if e["ph"] == "M" and e["pid"] == 0}
    assert card == {"name": "GAUDI2", "totalGlobalMem": 96 << 30, "simulated": True}
    assert metadata["process_name"] == {"name": "/device:HPU:0"}
    assert metadata["process_labels"]["labels"].startswith("simulated")
    assert any(event["name"] == "aten::sin" for event in trace["traceEvents"])


@pytest.fixture(scope="module")
def recorded_trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the trace of a small training step."""
    weight = torch.ones(8, 8, device="hpu", requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.HPU]) as recorded:
        (torch.ones(8, 8).to("hpu") @ weight).relu().sum().backward()
        torch.ones(1, device="hpu").item()
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    recorded.export_chrome_trace(str(path))
    return _trace(path)


def _work(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == 0]


def test_lanes_and_categories_follow_the_engine(recorded_trace: dict[str, Any]) -> None:
    """Matrix products, other operators and copies have a lane each. hpu-profiler's tests check all rules."""
    found = {(event["name"], event["cat"], event["tid"]) for event in _work(recorded_trace)}

    assert {
        ("aten::mm", "Kernel", 6000),
        ("aten::relu", "Kernel", 7000),
        ("aten::threshold_backward", "Kernel", 7000),
        ("memcpy_h2d", "Memcpy", 3000),
        ("memcpy_d2h", "Memcpy", 3000),
    } <= found


def test_a_kernel_has_its_graph_and_no_link_to_an_operator(recorded_trace: dict[str, Any]) -> None:
    kernels = [event for event in _work(recorded_trace) if event["cat"] == "Kernel"]

    assert all(kernel["args"]["recipeId"] > 0 for kernel in kernels)
    assert all(kernel["args"]["recipeName"] == kernel["name"] for kernel in kernels)
    assert not any({"correlation", "External id"} & event["args"].keys() for event in _work(recorded_trace))


def test_overlapping_events_get_lanes_of_their_own() -> None:
    """Chrome's format allows only nested events in a lane, and Perfetto drops others."""
    from habana_frameworks.torch._chrome_trace import TraceWriter

    times = [(0, 4000), (1000, 6000), (2000, 3000), (5000, 7000), (5000, 8000)]
    intervals = [("collective", "allreduce", begin, end, 1, 8) for begin, end in times]
    events = TraceWriter(0).write(intervals)

    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [(names[event["tid"]], event["ts"], event["dur"]) for event in events if event["ph"] == "X"] == [
        ("NIC_0", 0, 4),
        ("NIC_1", 1, 5),
        ("NIC_0", 2, 1),
        ("NIC_0", 5, 3),
        ("NIC_0", 5, 2),
    ]


def test_the_devices_work_takes_time(recorded_trace: dict[str, Any]) -> None:
    """The measured events are not empty, and those of a thread do not overlap."""
    forward = [event for event in _work(recorded_trace) if event["name"] in {"aten::mm", "aten::relu", "aten::sum"}]
    ordered = sorted(forward, key=lambda event: event["ts"])

    assert all(event["dur"] > 0 for event in ordered)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in itertools.pairwise(ordered))


def test_a_compilation_is_a_call_of_the_compiler(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.HPU]) as recorded:
        torch.ones(57, device="hpu").erfinv()
        torch.ones(1, device="hpu").item()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))

    events = _trace(tmp_path / "trace.json")["traceEvents"]
    assert (2, 7000) in {(e["pid"], e["tid"]) for e in events if e["name"] == "synGraphCompile"}


@pytest.mark.parametrize("activity", ["CPU", "HPU"])
def test_each_activity_records_operators(activity: str, tmp_path: Path) -> None:
    """A trace of the CPU alone has no device, and the device keeps nothing after a profile."""
    with profile(activities=[getattr(ProfilerActivity, activity)]) as recorded:
        torch.ones(3, 3, device="hpu").sin()
    torch.ones(3, device="hpu").sin()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))

    assert any(event.key == "aten::sin" for event in recorded.key_averages())
    assert bool(_trace(tmp_path / "trace.json")["deviceProperties"]) is (activity == "HPU")
    assert native().stop_device_trace() == []


def test_the_names_are_torchs_after_1_19() -> None:
    """Those that were imported before the bridge stay valid."""
    from habana_frameworks.torch.activity_profiler import DebugActivity

    assert torch.profiler.ProfilerActivity is ProfilerActivity
    assert torch.profiler.profile is profile
    assert [(member.name, member.value) for member in DebugActivity] == [("BRIDGE_FUNCTION_CALLS", 2)]


_OLD = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": "1.19.0"}
_START = """
import json, sys, warnings
import torch
import habana_frameworks.torch
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from habana_frameworks.torch.activity_profiler import DebugActivity
def work():
    torch.ones(3, 3, device="hpu").sin()
"""


def test_up_to_1_19_the_enum_is_the_bridges(output_on: Callable[..., str]) -> None:
    program = _START + "print([(a.name, a.value) for a in ProfilerActivity], [d.value for d in DebugActivity])"

    assert output_on(program, **_OLD) == "[('CPU', 1), ('CUDA', 2), ('HPU', 3)] [1, 2]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "GAUDI2 cpu_op Kernel"),
        (
            "activities=list(ProfilerActivity)[::2], debug_activities=[DebugActivity.BRIDGE_FUNCTION_CALLS]",
            "GAUDI2 cpu_op Kernel",
        ),
        ("activities=[ProfilerActivity.HPU]", "GAUDI2 cpu_op Kernel"),
        ("activities=[ProfilerActivity.CPU]", "cpu_op"),
        ("schedule=torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)", "GAUDI2 cpu_op Kernel"),
    ],
    ids=["default", "both", "card", "cpu", "schedule"],
)
def test_up_to_1_19_a_profile_records_the_device(
    arguments: str, expected: str, tmp_path: Path, output_on: Callable[..., str]
) -> None:
    """It does so by default, and with the handler for TensorBoard."""
    program = f"""{_START}
from pathlib import Path
with profile({arguments}{", " * bool(arguments)}on_trace_ready=tensorboard_trace_handler(sys.argv[1])) as recorded:
    for _ in range(4 if "schedule" in {arguments!r} else 1):
        work()
        recorded.step()
(path,) = Path(sys.argv[1]).glob("*.pt.trace.json")
trace = json.loads(path.read_text())
print(*(card["name"] for card in trace["deviceProperties"]), end=" ")
print(*(e["cat"] for e in trace["traceEvents"] if e["name"] == "aten::sin"))
"""

    assert output_on(program, tmp_path, **_OLD).splitlines()[-1].strip() == expected


def test_up_to_1_19_names_imported_earlier_stay_torchs(output_of: Callable[..., str]) -> None:
    """This is why a program imports the bridge first."""
    program = """
    import hpu_sim
    from torch.profiler import ProfilerActivity as before
    hpu_sim.activate(release="1.19.0")
    from torch.profiler import ProfilerActivity as after
    print(before is after, before.CPU.name, after.CPU.name)
    """

    assert output_of(program) == "False CPU CPU"
