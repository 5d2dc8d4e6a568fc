"""Exports for Perfetto and speedscope."""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report.export import clock_offsets, write_perfetto, write_speedscope
from hpu_profiler.trace import reader
from hpu_profiler.trace.model import Operator, Trace
from hpu_profiler.trace.reader import read_parts, read_trace

from ..bridge_trace import BridgeTrace  # noqa: TID252 - pytest gives the folder of tests no absolute name
from ..chrome_trace import violations  # noqa: TID252 - as above
from ..trace_builder import TraceBuilder  # noqa: TID252 - as above


def _rank(rank: int, clock: float, folder: Path) -> Path:
    """Write a trace of two steps of 100 us, whose collectives end at 90 us, on a clock of its own."""
    trace = BridgeTrace(flow_events=True, distributedInfo={"rank": rank, "world_size": 2})
    trace.steps(2, 100, clock)
    for step in (clock, clock + 100):
        trace.enqueue(11, step + 5, 2)
        trace.engine("*MME ", "toy_gemm", step + 10, 20, recipe=11)
        trace.engine("*NIC ", "nic_toy", step + 40 + 10 * rank, 50 - 10 * rank)
    return trace.write(folder / f"fit-{rank}.pt.trace.json")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Traces of two ranks, whose clocks differ by 5000 us."""
    return [_rank(0, 1000, tmp_path), _rank(1, 6000, tmp_path)]


def _export(paths: list[Path], path: Path) -> list[dict[str, Any]]:
    offsets = clock_offsets(analyze_job(read_trace(each) for each in paths))
    write_perfetto(path, [(each, rank) for rank, each in enumerate(paths)], offsets)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


def test_clocks_are_aligned_by_the_ends_of_collectives(paths: list[Path]) -> None:
    offsets = clock_offsets(analyze_job(read_trace(path) for path in paths))

    assert offsets == {paths[0]: 0, paths[1]: -5000}


def test_clocks_without_collectives_are_aligned_by_the_first_step(
    builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    traces = [make_trace(builder.step(0, start, 100), name=f"{start}.pt.trace.json") for start in (0, 700)]

    assert list(clock_offsets(analyze_job(traces)).values()) == [0, -700]


@pytest.mark.parametrize("name", ["timeline.json", "timeline.json.gz"])
def test_each_rank_has_processes_and_flows_of_its_own(name: str, paths: list[Path], tmp_path: Path) -> None:
    events = _export(paths, tmp_path / name)

    assert violations(events) == []
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == [
        "rank 0: /device:HPU:0",
        "rank 0: process 2",
        "rank 0: process 4019",
        "rank 1: /device:HPU:0",
        "rank 1: process 2",
        "rank 1: process 4019",
    ]
    ends = {names[e["pid"]]: e["ts"] + e["dur"] for e in events if e["name"] == "nic_toy"}
    assert ends == {"rank 0: /device:HPU:0": 1190, "rank 1: /device:HPU:0": 1190}


def test_arguments_are_kept(paths: list[Path], tmp_path: Path) -> None:
    event = next(e for e in _export(paths, tmp_path / "timeline.json") if e["name"] == "toy_gemm")

    assert event["args"] == {
        "dataType": "",
        "device": 0,
        "eventHandle": "0x0",
        "recipeId": 11,
        "recipeName": "r_11",
        "streamHandle": "0x7a10",
    }


def test_memory_of_the_card_is_a_counter(tmp_path: Path) -> None:
    """The bridge gives the card the number of another device."""
    trace = BridgeTrace()
    trace.memory(12, 4096, 8192)
    trace.memory(15, -4096, 4096)

    events = _export([trace.write(tmp_path / "fit-0.pt.trace.json")], tmp_path / "timeline.json")

    assert [(e["name"], e["args"]) for e in events if e["ph"] == "C"] == [
        ("allocated memory, card 0", {"bytes": 8192}),
        ("allocated memory, card 0", {"bytes": 4096}),
    ]


def test_calls_that_the_bridge_paired_wrongly_nest(tmp_path: Path) -> None:
    """Perfetto drops calls that cross others of their lane."""
    trace = BridgeTrace()
    trace.steps(1, 100)
    trace.fifo(("outer", "inner"), (10, 20), (30, 40))

    events = _export([trace.write(tmp_path / "fit-0.pt.trace.json")], tmp_path / "timeline.json")

    assert violations(events) == []
    assert {e["name"]: (e["ts"], e["dur"]) for e in events if e["name"] in {"outer", "inner"}} == {
        "inner": (20, 10),
        "outer": (10, 30),
    }


def _speedscope(traces: Iterable[Trace], folder: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Export traces; return the names of the frames and the profiles, which must follow speedscope's schema."""
    path = folder / "stacks.json"
    write_speedscope(path, traces)
    content = json.loads(path.read_text())
    assert set(content) == {"$schema", "exporter", "profiles", "shared"}
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert all(set(frame) == {"name"} for frame in content["shared"]["frames"])
    for profile in content["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "events"}
        assert (profile["type"], profile["unit"]) == ("evented", "microseconds")
        times = [event["at"] for event in profile["events"]]
        assert [profile["startValue"], *times, profile["endValue"]] == sorted([*times, times[0], times[-1]])
        opened = []
        for event in profile["events"]:
            assert set(event) == {"type", "frame", "at"}
            if event["type"] == "O":
                opened.append(event["frame"])
            else:
                assert (event["type"], event["frame"]) == ("C", opened.pop())
        assert opened == []
    return [frame["name"] for frame in content["shared"]["frames"]], content["profiles"]


def test_stacks_open_and_close_in_order(
    builder: TraceBuilder, make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    """A callee ends at the latest with its caller, because speedscope refuses others."""
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.frame("train.py(1): outer", 0, 50),
        builder.frame("train.py(9): inner", 10, 45),
        builder.frame("train.py(9): inner", 60, 10),
    )

    names, (profile,) = _speedscope([trace], tmp_path)

    assert [(event["type"], names[event["frame"]], event["at"]) for event in profile["events"]] == [
        ("O", "train.py(1): outer", 0),
        ("O", "train.py(9): inner", 10),
        ("C", "train.py(9): inner", 50),
        ("C", "train.py(1): outer", 50),
        ("O", "train.py(9): inner", 60),
        ("C", "train.py(9): inner", 70),
    ]


def test_without_stacks_annotations_and_operators_are_exported(
    builder: TraceBuilder, make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile]run_training_batch", 0, 50),
        builder.operator("aten::mm", 20, 10),
    )

    names, _ = _speedscope([trace], tmp_path)

    assert names == ["[pl][profile]run_training_batch", "aten::mm"]


def test_parts_of_a_trace_are_one_profile(
    builder: TraceBuilder, write_trace: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may end in the next part."""
    events = [builder.step(index, 100 * index, 100) for index in range(8)]
    path = write_trace(*events, *(builder.frame("train.py(1): f", 100 * i + 5, 99) for i in range(8)))
    monkeypatch.setattr(reader, "MAX_BYTES", path.stat().st_size // 3)

    _, profiles = _speedscope(read_parts(path), tmp_path)

    assert [len(profile["events"]) for profile in profiles] == [16]


def test_each_trace_is_a_profile(paths: list[Path], tmp_path: Path) -> None:
    _, profiles = _speedscope(
        [replace(read_trace(path), operators=[Operator("aten::mm", 5, 9, 7, 0)], steps=[]) for path in paths], tmp_path
    )

    assert [profile["name"] for profile in profiles] == [path.name for path in paths]


def test_export_of_a_cut_trace_has_what_was_read(paths: list[Path], tmp_path: Path) -> None:
    """The process may have been killed while it wrote the trace."""
    whole = paths[0].read_bytes()
    cut = tmp_path / "cut.pt.trace.json"
    cut.write_bytes(whole[: len(whole) * 2 // 3])

    events = _export([cut], tmp_path / "out.json")
    assert any(event.get("ph") == "X" for event in events)


def test_output_is_no_input(paths: list[Path]) -> None:
    before = paths[0].read_bytes()

    with pytest.raises(ValueError, match="the output must be another file than the traces"):
        write_perfetto(paths[0], [(paths[0], 0)], {})
    with pytest.raises(ValueError, match="the output must be another file than the traces"):
        write_speedscope(paths[0], read_parts(paths[0]))
    assert paths[0].read_bytes() == before


def test_failed_export_leaves_what_was_there(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    out.write_text("before")
    files = sorted(tmp_path.iterdir())
    monkeypatch.setattr("hpu_profiler.report.export._events", lambda _: iter([{"ph": "X", "ts": object()}]))

    with pytest.raises(TypeError):
        write_perfetto(out, [(paths[0], 0)], {})
    assert out.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == files
