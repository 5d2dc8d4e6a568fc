"""Tests of the merging of sites by line, and of their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.report.source_lines import SourceLine, rank_labels, source_lines

from .factories import make_frame, make_record, make_report, make_site

if TYPE_CHECKING:
    from hpu_sim.report.schema import Site


def _line(site: Site) -> SourceLine:
    """Return the line of a site in a run of ten steps."""
    (line,) = source_lines(make_report(make_record(sites=(site,))))
    return line


def test_sites_of_all_ranks_share_a_line() -> None:
    """Counts are summed; the frequency is that of the rank with most events."""
    records = [
        make_record(rank=0, sites=(make_site(count=3, bytes=10, steps=3),)),
        make_record(rank=2, sites=(make_site(count=10, bytes=10, steps=10),)),
    ]

    (line,) = source_lines(make_report(*records))

    assert (line.who, line.count, line.bytes) == ("all ranks", 13, 20)
    assert (line.site.count, line.site.steps) == (10, 10)


def test_label_has_the_pid_if_several_processes_had_the_rank() -> None:
    once = make_report(make_record(rank=0), make_record(rank=1))
    twice = make_report(make_record(rank=0, pid=7), make_record(rank=0, pid=8), make_record(rank=1))

    assert rank_labels(once) == ("0", "1")
    assert rank_labels(twice) == ("0 (pid 7)", "0 (pid 8)", "1")


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "d2h"},
        {"op": "copy to host"},
        {"variant": "pinned"},
        {"backward": "Pow"},
        {"frame_index": None},
        {"cause": "Trainer.fit"},
    ],
    ids=str,
)
def test_different_events_of_a_line_stay_separate(changes: dict[str, object]) -> None:
    report = make_report(make_record(sites=(make_site(), make_site(**changes))))

    assert len(source_lines(report)) == 2


def test_stacks_of_a_line_stay_separate() -> None:
    """Frames of a framework further outside do not matter."""
    inner = [make_frame(file="/env/lightning/loop.py", line=line, is_user=False) for line in (1, 2)]
    sites = [
        make_site(stack=(inner[0], make_frame(), inner[0]), frame_index=1),
        make_site(stack=(inner[0], make_frame(), inner[1]), frame_index=1),
        make_site(stack=(inner[1], make_frame(), inner[1]), frame_index=1),
    ]

    assert len(source_lines(make_report(make_record(sites=tuple(sites))))) == 2


def test_most_frequent_line_comes_first() -> None:
    rare = make_site(stack=(make_frame(line=1),), count=1)
    frequent = make_site(stack=(make_frame(line=2),), count=9)

    lines = source_lines(make_report(make_record(sites=(rare, frequent))))

    assert [line.site.frame.line for line in lines if line.site.frame is not None] == [2, 1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "every step"),
        ({"count": 19}, "2 per step"),
        ({"count": 20}, "20 times in 10 of 10 steps"),
        ({"count": 20, "in_first_step": 0, "steps": 9}, "20 times in 9 of 10 steps"),
        ({"count": 3, "in_first_step": 3, "steps": 1, "last_step": 1}, "3 times in step 1"),
        ({"count": 1, "in_first_step": 1, "steps": 1, "last_step": 1}, "once in step 1"),
        ({"count": 1, "in_first_step": 0, "steps": 1}, "once in 1 of 10 steps"),
        ({"count": 12, "in_first_step": 0, "steps": 1, "last_step": 11}, "12 times in 1 of 11 steps"),
    ],
)
def test_frequency(changes: dict[str, int], text: str) -> None:
    assert _line(make_site(**changes)).frequency == text


def test_frequency_without_training_steps() -> None:
    record = make_record(steps=0, sites=(make_site(count=4, in_first_step=4, steps=1),))
    (line,) = source_lines(make_report(record))

    assert line.frequency == "4 times, no training step"
    assert line.occurrence == "no training steps"


@pytest.mark.parametrize(
    ("changes", "occurrence"),
    [
        ({}, "every step"),
        ({"steps": 6}, "every step"),
        ({"steps": 5}, "some steps"),
        ({"steps": 1, "last_step": 1}, "some steps"),
    ],
    ids=str,
)
def test_occurrence(changes: dict[str, Any], occurrence: str) -> None:
    """Events of at least half of the steps count as events of every step."""
    assert _line(make_site(**changes)).occurrence == occurrence


def test_two_steps_are_too_few_for_every_step() -> None:
    (line,) = source_lines(make_report(make_record(steps=2, sites=(make_site(steps=2, last_step=2),))))

    assert line.occurrence == "some steps"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "scalar read: .item(), float(), a branch on a tensor, printing"),
        ({"op": "copy to host"}, "copy to the host: .cpu(), .numpy(), printing"),
        ({"op": "synchronize"}, "explicit synchronization"),
        ({"op": "aten::nonzero"}, "data-dependent shape: nonzero"),
        ({"op": "Event.synchronize"}, "wait for an event"),
        ({"kind": "cpu_fallback", "op": "aten::digamma"}, "no kernel on the card: digamma"),
        ({"kind": "compilation", "op": "aten::mul", "variant": "shapes"}, "new input shapes: mul"),
        ({"kind": "compilation", "op": "aten::sum", "variant": "arguments"}, "new arguments: sum"),
        (
            {
                "kind": "compilation",
                "op": "aten::mm",
                "variant": "shapes",
                "examples": ["float32[4, 3] -> float32[5, 3]", "float32[5, 3] -> float32[6, 3]"],
            },
            "new input shapes: mm, float32[4, 3] -> float32[5, 3]",
        ),
        ({"kind": "compilation", "op": "aten::mul", "variant": "operators"}, "new operator: mul"),
        ({"kind": "compilation", "op": "", "variant": "end"}, "new end of the graph"),
        (
            {"kind": "dtype", "op": "aten::mul", "variant": "float64", "backward": "Pow"},
            "mul, float64 (backward of Pow)",
        ),
        ({"kind": "dtype", "op": "aten::mul", "variant": "float64", "backward": ""}, "mul, float64 (backward)"),
        ({"kind": "h2d", "op": "copy", "variant": "pinned"}, "host to device, pinned memory"),
        ({"kind": "d2h", "op": "copy", "variant": "pageable"}, "device to host, pageable memory"),
        ({"kind": "collective", "op": "allreduce", "variant": "int64"}, "allreduce, int64"),
        ({"kind": "unsupported", "op": "aten::fft", "examples": ["not available"]}, "fft: not available"),
    ],
)
def test_description(changes: dict[str, object], text: str) -> None:
    assert _line(make_site(**changes)).description == text
