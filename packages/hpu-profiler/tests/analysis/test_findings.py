"""Findings."""

import pytest

from hpu_profiler.analysis.findings import Finding
from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.trace.model import Trace

from ..trace_builder import JsonEvent, TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _find(*traces: Trace) -> dict[str, Finding]:
    return {finding.kind: finding for finding in analyze_job(traces).stages[0].findings}


def _steps(builder: TraceBuilder, *events: JsonEvent, kernel: tuple[float, float] = (80, 20)) -> list[JsonEvent]:
    """Return two steps of 100 us, each with a kernel, and the events."""
    return [
        *(builder.step(index, 100 * index, 100) for index in range(2)),
        *(builder.device_event("k", 100 * index + kernel[0], kernel[1]) for index in range(2)),
        *events,
    ]


def test_findings_are_sorted_by_saving(job: JobAnalysis) -> None:
    assert [(each.kind, each.saving) for each in job.stages[0].findings] == [
        ("straggler", 55),
        ("data loading", 55),
        ("exposed communication", 10),
        ("host sync", 9),
        ("compilation", 5),
    ]


def test_saving_is_limited_by_the_slowest_rank(fast_rank: Trace, builder: TraceBuilder) -> None:
    """Without data loading, rank 1 takes 30 us of work instead of 90 us, and rank 0 takes 30 us."""
    busy = builder.trace(
        *_steps(builder, kernel=(0, 100)), name="1.pt.trace.json", hpu_profiler={"rank": 1, "stage": "training"}
    )

    assert "data loading" not in _find(fast_rank, busy)


def test_item_of_a_tensor_on_the_host_is_not_a_sync(builder: TraceBuilder) -> None:
    """An optimizer reads its step counts. The trace shows copies of other operators."""
    trace = builder.trace(
        *_steps(
            builder,
            builder.operator("aten::copy_", 5, 10, 5),
            builder.device_event("Memcpy HtoD", 6, 1, "DMA", "memcpy", external_id=5),
            *(builder.operator("aten::item", start, 10) for start in (30, 130)),
        )
    )

    assert "host sync" not in _find(trace)


@pytest.mark.parametrize(
    ("action", "kind", "subject"),
    [
        ("[Callback]Sampler{'every': 1}.on_train_batch_end", "callback", "Sampler.on_train_batch_end"),
        ("augment", "user code", "augment"),
    ],
)
def test_host_work_is_named(action: str, kind: str, subject: str, builder: TraceBuilder) -> None:
    trace = builder.trace(*_steps(builder, builder.annotation(f"[pl][profile]{action}", 0, 60)))

    finding = _find(trace)[kind]

    assert (finding.subject, finding.saving) == (subject, 30)


def test_logger_is_named(builder: TraceBuilder) -> None:
    frame = builder.frame("lightning/pytorch/loggers/csv_logs.py(150): log_metrics", 0, 60)

    assert _find(builder.trace(*_steps(builder, frame)))["logger"].saving == 30


def test_work_that_makes_a_rank_slow_is_named_once(fast_rank: Trace, builder: TraceBuilder) -> None:
    slow = builder.trace(
        *_steps(builder, *(builder.annotation("[pl][profile]augment", start, 70) for start in (0, 100))),
        name="1.pt.trace.json",
        hpu_profiler={"rank": 1, "stage": "training"},
    )

    found = _find(fast_rank, slow)

    assert found["straggler"].subject == "augment"
    assert "user code" not in found


def test_simulated_device_gives_no_findings_about_its_own_time(
    fast_rank: Trace, slow_rank: Trace, job: JobAnalysis
) -> None:
    """A simulated device computes on the host, so launches and collectives are as slow as the host; torch compiles."""
    fast_rank.simulated = slow_rank.simulated = True

    findings = analyze_job([fast_rank, slow_rank]).stages[0].findings

    assert "exposed communication" in {each.kind for each in job.stages[0].findings}
    assert [each.kind for each in findings] == ["straggler", "data loading", "compilation", "host sync"]
    assert all(each.simulated for each in findings)


def test_predicted_times_give_all_findings_and_mark_them(fast_rank: Trace, slow_rank: Trace, job: JobAnalysis) -> None:
    fast_rank.predicted = slow_rank.predicted = True

    findings = analyze_job([fast_rank, slow_rank]).stages[0].findings

    assert [each.kind for each in findings] == [each.kind for each in job.stages[0].findings]
    assert all(each.predicted and not each.simulated for each in findings)


def test_saving_of_a_straggler_is_limited_by_the_next_slowest_rank(builder: TraceBuilder) -> None:
    """The ranks work for 20, 20, 60 and 90 us."""
    traces = [
        builder.trace(
            *_steps(
                builder,
                *(builder.annotation("[pl][profile]work", 100 * step, busy) for step in range(2)),
                *(builder.device_event("nic_toy_send", 100 * step + busy, 100 - busy, "NIC") for step in range(2)),
                kernel=(0, 1),
            ),
            name=f"{rank}.pt.trace.json",
            hpu_profiler={"rank": rank},
        )
        for rank, busy in enumerate((20, 20, 60, 90))
    ]

    straggler = _find(*traces)["straggler"]

    assert straggler.title == "Rank 3 is slow: the other ranks wait 70 us for it in each step"
    assert straggler.saving == 30


def test_host_trace_has_no_findings_about_a_card(builder: TraceBuilder) -> None:
    events = [builder.operator("aten::item", 10 * index, 9, shapes=[[index]]) for index in range(20)]

    assert _find(builder.trace(builder.step(0, 0, 100), builder.step(1, 100, 100), *events)) == {}


def test_data_loading_has_the_line_of_the_dataset(builder: TraceBuilder) -> None:
    trace = builder.trace(
        *_steps(
            builder,
            builder.annotation("[pl][profile][_TrainingEpochLoop].train_dataloader_next", 0, 50),
            builder.frame("torch/utils/data/dataloader.py(7): __next__", 1, 48),
            builder.frame("train.py(12): __getitem__", 5, 40),
        )
    )

    finding = _find(trace)["data loading"]

    assert (finding.location, finding.saving) == ("train.py:12 __getitem__", 25)
    assert "num_workers" in finding.cure


def test_slow_operators_of_a_simulated_rank_are_not_a_finding(builder: TraceBuilder) -> None:
    traces = [
        builder.trace(
            builder.step(0, 0, 100),
            builder.operator("aten::mm", 0, 10 + 70 * rank),
            builder.device_event("k", 90, 10),
            builder.device_event("nic_toy_send", 20 + 70 * rank, 80 - 70 * rank, "NIC"),
            name=f"{rank}.pt.trace.json",
            hpu_profiler={"rank": rank},
            deviceProperties=[{"name": "GAUDI2", "simulated": True}],
        )
        for rank in range(2)
    ]

    assert _find(*traces) == {}
