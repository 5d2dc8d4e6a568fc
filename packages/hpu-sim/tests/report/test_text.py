"""Tests of the terminal summary."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.common.document import MAX_LINES
from hpu_sim.prediction.step import CollectiveGroup
from hpu_sim.report.view import MAX_FINDINGS, document

from .factories import MACHINE, PREDICTED, make_frame, make_record, make_report, make_site

if TYPE_CHECKING:
    from hpu_sim.report.schema import Report


def render(report: Report) -> str:
    return document(report).text()


def test_each_rank_has_a_row() -> None:
    other = make_record(rank=11, totals={"collectives": 1200, "collective_bytes": 5 << 20, "d2h_copies": 0})

    assert render(make_report(make_record(), other)).splitlines() == [
        "hpu-sim: 2 x GAUDI2, SynapseAI 1.24.1, lazy mode (simulated)",
        "  rank  steps  graphs  recompiled  host syncs  H2D copies  D2H copies    collectives      peak memory",
        "     0     10      20           3          10  12 (4 KiB)   10 (40 B)              0  3 GiB of 96 GiB",
        "    11     10      20           3          10  12 (4 KiB)           0  1 200 (5 MiB)  3 GiB of 96 GiB",
    ]


def test_eager_mode_shows_no_graphs() -> None:
    """A count of 0 would look like an absence of recipe cache misses."""
    record = make_record(machine=dataclasses.replace(MACHINE, lazy=False))
    title, _, row, *_ = render(make_report(record)).splitlines()

    assert "eager mode" in title
    assert row.split()[:5] == ["0", "10", "-", "-", "10"]


def test_findings_list_their_lines() -> None:
    """Paths below the working directory are relative."""
    sites = (make_site(), make_site(stack=(make_frame(file=str(Path.cwd() / "src" / "loop.py")),), count=9, steps=9))
    lines = render(make_report(make_record(sites=sites))).splitlines()

    assert lines[3:] == [
        "  performance: Host-device synchronization in every step",
        "    /home/me/train.py:42  every step: scalar read: .item(), float(), a branch on a tensor, printing",
        "    src/loop.py:42  9 times in 9 of 10 steps: scalar read: .item(), float(), a branch on a tensor, printing",
    ]


def test_numbers_of_findings_and_lines_are_limited() -> None:
    sites = tuple(make_site(stack=(make_frame(line=line),)) for line in range(10))
    kinds = ("host_sync", "unsupported", "cpu_fallback", "graph_break", "trace_break", "late_error")
    others = tuple(make_site(kind=kind) for kind in kinds[1:])

    lines = render(make_report(make_record(sites=sites))).splitlines()
    assert sum("train.py" in line for line in lines) == MAX_LINES
    assert lines[-1] == "    and 7 more lines"
    shown = render(make_report(make_record(sites=(*sites, *others)))).splitlines()
    assert sum(line.startswith(("  error", "  performance")) for line in shown) == MAX_FINDINGS


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"cause": "ModelCheckpoint.on_train_batch_end"}, "/home/me/train.py:42 (ModelCheckpoint.on_train_batch_end)"),
        ({"frame_index": None, "stack": ()}, "no Python line"),
    ],
    ids=["cause in a framework", "no frame"],
)
def test_a_line_of_a_finding(changes: dict[str, Any], line: str) -> None:
    text = render(make_report(make_record(sites=(make_site(**changes),))))

    assert f"    {line}  every step: scalar read" in text


def test_finding_without_lines_shows_its_recommendation() -> None:
    text = render(make_report(make_record(state="running")))

    assert text.endswith("  error: Rank 0 was killed\n    The report shows the state up to a few seconds earlier.\n")


def test_limitations_are_notes_at_the_end() -> None:
    text = render(make_report(make_record(world_size=2), missing_ranks=(1,)))

    assert text.splitlines()[-1].startswith("  note: Rank 1 left no record")


def test_program_without_a_device_gets_one_line() -> None:
    assert render(make_report()) == "hpu-sim: no process used a simulated card\n"


def test_a_predicted_step_is_shown_as_in_a_plan() -> None:
    collectives = (CollectiveGroup("allreduce", "backward", 2, 1 << 20, 2, 1),)
    predicted = dataclasses.replace(PREDICTED, collectives=collectives)

    shown = render(make_report(make_record(predicted=predicted, notes=("decomposed",))))

    assert (
        "  step 3 on GAUDI2, predicted, not measured: 1.25 ms (1 ms to 2 ms), limited by memory (100%); "
        "2 collectives (1 MiB) per step\n"
    ) in shown
    assert re.search(r"  /home/me/train.py:42 +500 us, 40% +memory +10 GiB +2 +copy_\n", shown)
    assert re.search(r"  no line of the program +125 us, 10% +memory +1\n", shown)
    assert re.search(r"  allreduce +backward +2 +1 MiB +2 +1\n", shown)
    assert "  note: decomposed\n" in shown


def test_graphs_of_torch_compile_are_one_line() -> None:
    sites = (
        make_site(kind="compiled_graph", op="forward", count=2, last_step=1),
        make_site(kind="compiled_graph", op="backward", count=1, last_step=3),
    )

    shown = render(make_report(make_record(sites=sites), make_record(sites=sites)))

    assert "  torch.compile: 3 graphs, the last in step 3" in shown.splitlines()


def test_what_strict_mode_would_refuse_is_one_line_over_all_ranks() -> None:
    records = [make_record(rank=rank, leniences={"complex results": 1500}) for rank in range(2)]

    assert render(make_report(*records)).splitlines()[-1] == "  --strict would refuse or change: 3 000 complex results"


def test_strict_mode_is_in_the_title() -> None:
    record = make_record(machine=dataclasses.replace(MACHINE, strict=True))

    assert "lazy mode, strict (simulated)" in render(make_report(record)).splitlines()[0]
