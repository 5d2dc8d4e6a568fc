"""The table on a terminal."""

from __future__ import annotations

from pathlib import Path

from hpu_sim.report.schema import Machine, UncaughtError
from hpu_sim.report.text import MAX_FINDINGS, MAX_LINES, render

from .factories import make_frame, make_record, make_report, make_site


def test_each_rank_has_a_row() -> None:
    """Below the machine, which is said to be simulated."""
    other = make_record(rank=11, totals={"collectives": 1200, "collective_bytes": 5 << 20, "d2h_copies": 0})

    assert render(make_report(make_record(), other)).splitlines() == [
        "hpu-sim: 2 x GAUDI2, SynapseAI 1.24.1, lazy mode (simulated)",
        "  rank  steps  graphs  recompiled  host syncs     to card    to host    collectives      peak memory",
        "     0     10      20           3          10  12 (4 KiB)  10 (40 B)              0  3 GiB of 96 GiB",
        "    11     10      20           3          10  12 (4 KiB)          0  1 200 (5 MiB)  3 GiB of 96 GiB",
    ]


def test_eager_mode_has_no_graphs() -> None:
    """0 would look as if all were well."""
    machine = Machine(1, "GAUDI3", "1.24.1", lazy=False, memory_bytes=128 << 30, torch="2.13.0")
    title, _, row, *_ = render(make_report(make_record(machine=machine))).splitlines()

    assert "eager mode" in title
    assert row.split()[:5] == ["0", "10", "-", "-", "10"]


def test_findings_follow_with_their_lines() -> None:
    """Files below the folder of the terminal are named from there."""
    sites = (make_site(), make_site(stack=(make_frame(file=str(Path.cwd() / "src" / "loop.py")),), count=9, steps=9))
    lines = render(make_report(make_record(sites=sites))).splitlines()

    meaning = "a value was read: .item(), float(), a branch on a tensor, printing"
    assert lines[3:] == [
        "  slow: The host waits for the card in every step",
        f"    /home/me/train.py:42  in every step: {meaning}",
        f"    src/loop.py:42  9 times, in 9 of 10 steps: {meaning}",
    ]


def test_long_lists_are_cut() -> None:
    """A terminal is no place for hundreds of lines."""
    sites = tuple(make_site(stack=(make_frame(line=line),)) for line in range(10))
    endings = [
        make_record(rank=rank, uncaught_error=UncaughtError("ValueError", "no", None), sites=sites) for rank in range(9)
    ]

    shown = render(make_report(endings[0])).splitlines()
    assert sum("train.py" in line for line in shown) == MAX_LINES
    assert shown[-1] == "    and 7 more lines"
    assert sum(line.startswith("  fails") for line in render(make_report(*endings)).splitlines()) == MAX_FINDINGS


def test_an_event_without_a_line_says_so() -> None:
    """Rather than nothing."""
    text = render(make_report(make_record(sites=(make_site(frame_index=None, stack=()),))))

    assert "    no Python line  in every step" in text


def test_a_finding_about_the_whole_says_what_it_is() -> None:
    """It has no line to show."""
    text = render(
        make_report(make_record(uncaught_error=UncaughtError("ValueError", "`epochs` must be positive", None)))
    )

    assert text.endswith("  fails: Rank 0 ended with ValueError\n    `epochs` must be positive\n")


def test_gaps_are_notes() -> None:
    """At the end."""
    text = render(make_report(make_record(world_size=2), missing_ranks=(1,)))

    assert text.splitlines()[-1].startswith("  note: Rank 1 left no record")


def test_a_program_without_a_card_is_one_line() -> None:
    """There is nothing to count."""
    assert render(make_report()) == "hpu-sim: no process used a simulated card\n"
