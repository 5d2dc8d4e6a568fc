"""Exports for Perfetto."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report.export import clock_offsets, write_perfetto
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import read_trace

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
