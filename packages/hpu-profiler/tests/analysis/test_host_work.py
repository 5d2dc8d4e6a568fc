"""Attribution of host work."""

import pytest

from hpu_profiler.analysis.host_work import Owner, host_work, locations, sync_spans, user_location
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def _times(trace: Trace) -> dict[Owner, float]:
    return {row.owner: row.time for row in host_work(trace, []) if row.time}


def test_time_belongs_to_the_innermost_owner(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile]run_training_batch", 10, 80),
        builder.annotation("[pl][profile][LightningModule]Net.training_step", 20, 50),
        builder.frame("train.py(5): training_step", 22, 46),
        builder.frame("train.py(9): augment", 30, 20),
        builder.operator("aten::mm", 55, 10),
        builder.annotation("Optimizer.step#Adam.step", 75, 5),
        hpu_profiler={"sources": {"[LightningModule]Net.training_step": "train.py:5 training_step"}},
    )

    line = "train.py:5 training_step"
    assert _times(trace) == {
        Owner("unrecorded"): 20,
        Owner("Lightning", "run_training_batch"): 25,
        Owner("optimizer", "Adam.step"): 5,
        Owner("user code", "Net.training_step", line): 4,
        Owner("user code", "training_step", line): 16,
        Owner("user code", "augment", "train.py:9 augment"): 20,
        Owner("operators", "training_step", line): 10,
    }


def test_hook_that_the_user_did_not_write_is_lightnings(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.step(0, 0, 10), builder.annotation("[pl][profile][LightningModule]Net.optimizer_step", 0, 10)
    )

    assert _times(trace) == {Owner("Lightning", "Net.optimizer_step"): 10}


def test_functions_of_a_callback_belong_to_it(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.step(0, 0, 10),
        builder.annotation("[pl][profile][Callback]Sampler.on_train_batch_end", 0, 10),
        builder.frame("sampler.py(3): draw", 1, 8),
    )

    assert _times(trace) == {
        Owner("callback", "Sampler.on_train_batch_end"): 2,
        Owner("callback", "Sampler.on_train_batch_end", "sampler.py:3 draw"): 8,
    }


def test_program_around_all_steps_and_other_threads_are_left_out(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.frame("train.py(1): main", 0, 100),
        builder.step(0, 10, 50),
        builder.operator("aten::mm", 10, 10, thread=8),
    )

    assert _times(trace) == {Owner("unrecorded"): 50}


@pytest.mark.parametrize(
    ("frame", "location"),
    [
        ("train.py(12): training_step", "train.py:12 training_step"),
        ("mine/model.py(3): forward", "mine/model.py:3 forward"),
        ("threading.py(982): run", ""),
        ("torch/nn/modules/linear.py(9): forward", ""),
        ("installed/module.py(1): f", ""),
        ("/usr/lib/python3/dist-packages/x.py(1): f", ""),
        ("hpu_core/strategy.py(1): f", ""),
        ("<frozen abc>(117): __instancecheck__", ""),
        ("nn.Module: Linear_0", ""),
    ],
)
def test_functions_of_libraries_are_not_the_users(frame: str, location: str) -> None:
    assert user_location(frame, frozenset({"installed"})) == location


def test_location_without_stacks_is_that_of_the_hook(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile][Strategy]S.training_step", 10, 80),
        hpu_profiler={"sources": {"[Strategy]S.training_step": "train.py:5 training_step"}},
    )

    assert locations(trace, [(7, 30)]) == ["train.py:5 training_step"]


@pytest.mark.parametrize("number", [0, 8], ids=["by time", "by number"])
def test_values_on_the_host_are_read_without_waiting(number: int, builder: TraceBuilder) -> None:
    """As the counts of steps of torch's AdamW; the traces of the bridge link no copy to its operator."""
    trace = builder.trace(
        builder.step(0, 0, 100),
        builder.operator("aten::item", 10, 10, external_id=8),
        builder.operator("aten::item", 30, 10, external_id=9),
        builder.device_event("memcpy_d2h", 15, 3, "DMA", "Memcpy", external_id=number),
    )

    ((span, name),) = sync_spans(trace)
    assert name == ".item()"
    assert span.start == pytest.approx(10)


def test_a_number_of_elements_is_waited_for_without_a_copy(builder: TraceBuilder) -> None:
    trace = builder.trace(
        builder.step(0, 0, 100),
        builder.operator("aten::nonzero", 10, 10),
        builder.device_event("memcpy_d2h", 50, 3, "DMA", "Memcpy"),
    )

    assert [name for _, name in sync_spans(trace)] == [".nonzero()"]
