"""Stages of a trace."""

import pytest

from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.stages import split_stages, stage_segments

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.fixture
def mixed(builder: TraceBuilder) -> Trace:
    """Trace of two training steps of 100 us, with two validation steps of 20 us in the second one."""

    def action(name: str, start: float, duration: float) -> dict[str, object]:
        return builder.annotation(f"[pl][profile]{name}", start, duration)

    return builder.trace(
        builder.step(0, 0, 100),
        builder.step(1, 100, 100),
        action("[_TrainingEpochLoop].train_dataloader_next", 0, 10),
        action("run_training_batch", 10, 90),
        action("[LightningModule]M.on_validation_start", 100, 5),
        action("[_EvaluationLoop].val_next", 105, 5),
        action("[Strategy]S.validation_step", 110, 10),
        action("[LightningModule]M.validation_step", 111, 8),
        action("[_EvaluationLoop].val_next", 120, 5),
        action("[Strategy]S.validation_step", 125, 15),
        action("run_training_batch", 140, 60),
        builder.frame("train.py(3): fit", 0, 200),
        builder.operator("aten::mm", 20, 5, 1),
        builder.operator("aten::sum", 112, 5, 2),
        builder.device_event("mm", 21, 4, external_id=1),
        builder.device_event("sum", 113, 4, external_id=2),
        hpu_profiler={"stage": "training"},
    )


def test_segments_follow_the_actions(mixed: Trace) -> None:
    assert stage_segments(mixed) == [("train", (0, 100)), ("validate", (100, 140)), ("train", (140, 200))]


def test_each_event_belongs_to_one_stage(mixed: Trace) -> None:
    train, validate = split_stages(mixed)

    assert [operator.name for operator in train.operators] == ["aten::mm"]
    assert [operator.name for operator in validate.operators] == ["aten::sum"]
    assert [event.name for event in train.device_events] == ["mm"]
    assert [event.name for event in validate.device_events] == ["sum"]
    assert len(train.spans) + len(validate.spans) == len(mixed.spans)


def test_time_of_a_stage_excludes_other_stages(mixed: Trace) -> None:
    train, validate = split_stages(mixed)

    assert (train.stage, train.windows) == ("train", [(0, 100), (140, 200)])
    assert (validate.stage, validate.windows) == ("validate", [(100, 140)])


def test_steps_of_a_stage_within_another_are_its_step_actions(mixed: Trace) -> None:
    train, validate = split_stages(mixed)

    assert len(train.steps) == 2
    assert [step.interval for step in validate.steps] == [(100, 120), (120, 140)]


def test_functions_around_a_stage_are_clipped(mixed: Trace) -> None:
    train, validate = split_stages(mixed)

    assert [frame.interval for frame in train.frames] == [(0, 100), (140, 200)]
    assert [frame.interval for frame in validate.frames] == [(100, 140)]
