"""HPUProfiler in a Trainer on the CPU."""

import gc
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.profiler
from torch.profiler import ProfilerAction

from hpu_core import frameworks
from hpu_profiler import HPUProfiler
from hpu_profiler._summary import SORT_KEYS, format_table
from hpu_profiler.analysis.operators import OperatorStats
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import find_traces, read_trace

from .models import Model, loader, trainer

Callback = frameworks.current().pytorch("callbacks").Callback


def _traces(folder: Path) -> list[Trace]:
    return [read_trace(path) for path in find_traces([folder])]


def _steps(trace: Trace) -> list[int]:
    return [int(step.name.rpartition("#")[2]) for step in trace.steps]


def _unsaved(step: int) -> ProfilerAction:
    """Return the action of a schedule that never saves, for which torch itself would discard the trace."""
    return ProfilerAction.RECORD if step in {1, 2} else ProfilerAction.NONE


@pytest.mark.parametrize(
    ("options", "batches", "expected"),
    [
        ({"schedule": torch.profiler.schedule(wait=0, warmup=1, active=2, skip_first=3)}, 8, [[4, 5]]),
        ({"schedule": _unsaved}, 6, [[1, 2]]),
        ({"schedule": None}, 3, [[0, 1, 2]]),
        ({"schedule": None, "max_steps_per_trace": 2}, 8, [[0, 1]]),
    ],
    ids=["the user's", "without a step to save", "all steps", "limited"],
)
def test_schedule_is_followed(
    options: dict[str, Any],
    batches: int,
    expected: list[list[int]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        trainer(tmp_path, HPUProfiler(**options)).fit(Model(), loader(batches))

    assert [_steps(trace) for trace in _traces(tmp_path)] == expected
    text = "a trace of training steps ended after 2 steps; raise `max_steps_per_trace`"
    assert (text in caplog.text) is ("max_steps_per_trace" in options)


@pytest.mark.parametrize(("batches", "options", "expected"), [(7, {}, [2, 3, 4]), (3, {"max_epochs": 10}, [0, 1, 2])])
def test_default_schedule_of_validate(
    batches: int, options: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    """A short run is recorded whole, whatever the number of epochs."""
    trainer(tmp_path, HPUProfiler(), **options).validate(Model(), loader(batches), verbose=False)

    (trace,) = _traces(tmp_path)
    assert (trace.stage, _steps(trace)) == ("validate", expected)


def test_validation_has_its_own_trace(tmp_path: Path) -> None:
    """Steps of the sanity check do not count."""
    trainer(tmp_path, HPUProfiler(), num_sanity_val_steps=2).fit(Model(), loader(6), loader(7))

    assert {trace.stage: _steps(trace) for trace in _traces(tmp_path)} == {
        "train": [2, 3, 4],
        "validate": [2, 3, 4],
    }


def test_validation_between_recorded_steps_is_in_their_trace(tmp_path: Path) -> None:
    """It does not change the numbers of steps, and a later validation has its own trace."""
    run = trainer(tmp_path, HPUProfiler(), val_check_interval=3, num_sanity_val_steps=0)
    run.fit(Model(), loader(9), loader(7))

    traces = {trace.stage: trace for trace in _traces(tmp_path)}
    names = [span.name for span in traces["train"].spans]
    assert _steps(traces["train"]) == [2, 3, 4]
    assert sum(name.endswith(".validation_step") for name in names) == 7
    assert _steps(traces["validate"]) == [2, 3, 4]


def test_trace_has_the_lines_of_the_users_hooks(tmp_path: Path) -> None:
    trainer(tmp_path, HPUProfiler()).fit(Model(), loader(6))

    (trace,) = _traces(tmp_path)
    location = trace.sources["[LightningModule]Model.training_step"]
    assert re.search(r"models\.py:\d+ training_step$", location)
    assert trace.sources["[Strategy]SingleDeviceStrategy.training_step"] == location


@pytest.mark.parametrize("with_stack", [True, False])
def test_trace_with_stacks_names_the_installed_packages(with_stack: bool, tmp_path: Path) -> None:
    """And the lines of calls, for a flame graph too."""
    trainer(tmp_path, HPUProfiler(with_stack=with_stack, export_to_flame_graph=with_stack)).fit(Model(), loader(6))

    (trace,) = _traces(tmp_path)
    assert ("torch" in trace.libraries) is with_stack
    assert bool(trace.frames) is with_stack
    assert ["training_step" in path.read_text() for path in tmp_path.glob("*.stack")] == [True] * with_stack


def test_long_validation_ends_a_trace_of_training(tmp_path: Path) -> None:
    """It would fill the memory."""
    run = trainer(tmp_path, HPUProfiler(max_steps_per_trace=4), val_check_interval=3, num_sanity_val_steps=0)
    run.fit(Model(), loader(9), loader(7))

    (trace,) = (trace for trace in _traces(tmp_path) if trace.stage == "train")
    assert _steps(trace) == [2]


def test_training_is_not_in_a_trace_of_validation(tmp_path: Path) -> None:
    """The trace ends with the validation loop."""
    schedule = torch.profiler.schedule(wait=0, warmup=0, active=5, skip_first=6)
    run = trainer(
        tmp_path, HPUProfiler(schedule=schedule), val_check_interval=1, limit_val_batches=4, num_sanity_val_steps=0
    )
    run.fit(Model(), loader(3), loader(4))

    traces = [trace for trace in _traces(tmp_path) if trace.stage == "validate"]
    assert [_steps(trace) for trace in traces] == [[6, 7]]
    assert not any(span.name.endswith(".train_dataloader_next") for trace in traces for span in trace.spans)


def test_short_run_is_recorded_by_the_default_schedule(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        trainer(tmp_path, HPUProfiler()).fit(Model(), loader(2))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [0, 1]
    assert "too few training steps for the default schedule" in caplog.text
    assert f"HPUProfiler: wrote {trace.path}. Report: hpu-profiler report {tmp_path}" in caplog.text


def test_schedule_that_never_records_is_a_warning(tmp_path: Path) -> None:
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=20, warmup=1, active=1))

    with pytest.warns(UserWarning, match="did not record anything: the run had 3 training steps, .* from step 21 on"):
        trainer(tmp_path, profiler).fit(Model(), loader(3))


def test_actions_without_a_trainer_are_recorded_until_the_summary(tmp_path: Path) -> None:
    profiler = HPUProfiler(dirpath=tmp_path, filename="mine")
    with profiler.profile("first"):
        torch.ones(3) + 1
    profiler.summary()
    with profiler.profile("second"):
        torch.ones(3) + 1
    profiler.describe()

    names = [span.name for trace in _traces(tmp_path) for span in trace.spans if span.name.startswith("[pl]")]
    assert names == ["[pl][profile]first", "[pl][profile]second"]
    assert "aten::add" in (tmp_path / "mine.txt").read_text()


def test_modules_are_annotated_on_request(tmp_path: Path) -> None:
    """No hook remains after recording."""
    model = Model()
    trainer(tmp_path, HPUProfiler(record_module_names=True)).fit(model, loader(6))

    (trace,) = _traces(tmp_path)
    names = [span.name for span in trace.spans]
    assert names.count("[pl][module]torch.nn.modules.activation.ReLU: layers.1") == 3
    assert not model.layers[1]._forward_hooks


def test_summary_has_the_operators_of_the_trace(tmp_path: Path) -> None:
    profiler = HPUProfiler(filename="perf-logs", row_limit=-1)
    trainer(tmp_path, profiler).fit(Model(), loader(6))

    (trace,) = _traces(tmp_path)
    (path,) = tmp_path.glob("fit-perf-logs*.txt")
    rows = {line.split()[0]: line.split() for line in path.read_text().splitlines() if line.startswith("aten::")}
    assert rows.keys() == {operator.name for operator in trace.operators if operator.name.startswith("aten::")}
    assert int(rows["aten::addmm"][1]) == sum(operator.name == "aten::addmm" for operator in trace.operators) == 6
    assert profiler.summary() == path.read_text()


def test_summary_is_logged_without_a_filename(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And available after the run, which leaves no trace that was for the summary only."""
    profiler = HPUProfiler(export_to_chrome=False)
    with caplog.at_level("INFO"):
        trainer(tmp_path, profiler).fit(Model(), loader(6))

    assert "FIT Profiler Report" in caplog.text
    assert "aten::addmm" in caplog.text
    assert "aten::addmm" in profiler.summary()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("count", "many"),
        ("cpu_time", "slow"),
        ("cpu_time_total", "total"),
        ("self_cpu_time_total", "own"),
        ("cpu_memory_usage", "large"),
        ("self_cpu_memory_usage", "large"),
        ("hpu_time", "kernel"),
        ("hpu_time_total", "kernels"),
    ],
)
def test_summary_is_in_the_order_of_each_sort_key(key: str, first: str) -> None:
    rows = [
        OperatorStats("many", calls=9),
        OperatorStats("slow", calls=1, cpu_time=5),
        OperatorStats("total", calls=4, cpu_time=8),
        OperatorStats("own", calls=2, cpu_time=4, self_cpu_time=4),
        OperatorStats("large", calls=2, self_memory=64),
        OperatorStats("kernel", calls=1, device_time=3, device_events=1),
        OperatorStats("kernels", calls=4, device_time=6, device_events=4),
    ]
    table = format_table([], rows, sort_by=key, row_limit=1)

    assert table.splitlines()[1].split()[0] == first
    assert "6 more operators" in table
    assert set(SORT_KEYS) == HPUProfiler.AVAILABLE_SORT_KEYS


def test_summary_has_recorded_memory_and_shapes(tmp_path: Path) -> None:
    profiler = HPUProfiler(dirpath=tmp_path, profile_memory=True, record_shapes=True, group_by_input_shapes=True)
    with profiler.profile("work"):
        torch.ones(256).add(torch.ones(256))

    (row,) = (line for line in profiler.summary().splitlines() if line.startswith("aten::add "))
    assert "[256], [256]" in row
    assert row.endswith("  1 KiB")


def test_stacks_have_the_lines_of_calls_that_may_wait(tmp_path: Path) -> None:
    """A trace itself has the lines of definitions only."""
    profiler = HPUProfiler(dirpath=tmp_path, with_stack=True)
    with profiler.profile("work"):
        values = torch.ones(3)
        values.sum().item()
        values.tolist()
        values.cpu()
        f"{values.sum()}"
    profiler.summary()

    line = test_stacks_have_the_lines_of_calls_that_may_wait.__code__.co_firstlineno + 5
    (trace,) = _traces(tmp_path)
    found = [(call.name, call.location.split()[0].rpartition(":")[2]) for call in trace.sync_calls]
    assert found == [
        (".item()", str(line)),
        (".tolist()", str(line + 1)),
        (".cpu()", str(line + 2)),
        (".item()", str(line + 3)),
    ]


def test_on_trace_ready_is_called_after_the_trace_is_written(tmp_path: Path) -> None:
    seen: list[int] = []
    profiler = HPUProfiler(on_trace_ready=lambda _: seen.append(len(_traces(tmp_path))))
    trainer(tmp_path, profiler).fit(Model(), loader(6))

    assert seen == [1]


@pytest.mark.parametrize("callbacks", [[], [Callback()]], ids=["without callbacks", "with a callback"])
@pytest.mark.parametrize("fails_at", [0, 3])
def test_failed_training_leaves_a_trace(fails_at: int, callbacks: list[Any], tmp_path: Path) -> None:
    """It has the complete steps. Lightning reports a failure to callbacks only."""
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=0, warmup=0, active=9))

    with pytest.raises(RuntimeError, match="as requested"):
        trainer(tmp_path, profiler, callbacks=callbacks).fit(Model(fails_at), loader(8))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == list(range(fails_at))
    assert profiler.profiler is None


@pytest.mark.usefixtures("forks")
def test_exit_of_the_interpreter_leaves_a_trace(tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
from tests.models import Model, loader, trainer
from hpu_profiler import HPUProfiler

def exit_in_data_loading():
    yield from loader(3)
    sys.exit(3)

trainer(Path({str(tmp_path)!r}), HPUProfiler(schedule=None)).fit(Model(), exit_in_data_loading())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HPU_TESTING_TEARDOWN": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 3, done.stderr
    (trace,) = _traces(tmp_path)
    assert _steps(trace)[:2] == [0, 1]


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """Path at which no user, root included, can create a directory."""
    path = tmp_path / "blocked"
    path.write_text("not a directory")
    return path


@pytest.mark.parametrize("filename", [None, "perf-logs"])
def test_unwritable_directory_is_a_warning_after_training(
    filename: str | None, blocked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace is written to a temporary directory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = trainer(tmp_path, HPUProfiler(dirpath=blocked, filename=filename))

    with pytest.warns(UserWarning, match=r"HPUProfiler: the trace .*blocked.* could not be written: .*was written to"):
        run.fit(Model(), loader(6))

    assert run.global_step == 6
    assert len(list(tmp_path.glob("hpu-profiler-*/*.pt.trace.json"))) == 1


def test_deleted_trace_is_a_warning(tmp_path: Path) -> None:
    def delete(_: object) -> None:
        for path in find_traces([tmp_path]):
            path.unlink()

    run = trainer(tmp_path, HPUProfiler(on_trace_ready=delete))

    with pytest.warns(UserWarning, match="the summary lacks a trace"):
        run.fit(Model(), loader(6))


def test_profiler_can_be_pickled() -> None:
    """Trainers that spawn processes pickle it."""
    assert pickle.loads(pickle.dumps(HPUProfiler(filename="perf-logs"))).filename == "perf-logs"  # noqa: S301 - our own


def test_profiler_can_be_used_for_several_runs(tmp_path: Path) -> None:
    profiler = HPUProfiler()
    run = trainer(tmp_path, profiler)
    run.fit(Model(), loader(6))
    run.validate(Model(), loader(6), verbose=False)

    assert [(trace.path.name.split("-")[0], trace.stage) for trace in _traces(tmp_path)] == [
        ("fit", "train"),
        ("validate", "validate"),
    ]


def test_files_are_named_by_global_rank(tmp_path: Path) -> None:
    """Nodes may share a disk."""

    class Trainer:
        global_rank, world_size, node_rank = 9, 16, 1
        accelerator = None

    class Module:
        _trainer = Trainer()

    profiler = HPUProfiler(dirpath=tmp_path, filename="perf-logs")
    profiler._lightning_module = Module()  # type: ignore[assignment] # It has what the profiler reads.
    profiler.setup("fit", local_rank=1)

    assert profiler._prepare_filename() == "fit-perf-logs-9.txt"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sort_by_key": "cuda_time"}, ValueError, "`sort_by_key` must be one of .*hpu_time_total.* got 'cuda_time'"),
        ({"max_steps_per_trace": 0}, ValueError, "`max_steps_per_trace` must be a positive int, got 0"),
        ({"export_to_flame_graph": True}, ValueError, "needs `with_stack=True`, got `with_stack=False`"),
        ({"record_shape": True}, TypeError, r"unknown arguments \['record_shape'\]"),
        ({"schedule": "always"}, TypeError, "`schedule` must be a function .* got 'always'"),
    ],
)
def test_invalid_argument_is_an_error_of_the_constructor(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        HPUProfiler(**options)


def test_function_events_are_those_of_the_trace(tmp_path: Path) -> None:
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1))
    before = profiler.function_events
    trainer(tmp_path, profiler).fit(Model(), loader(4))

    assert before is None
    assert "aten::addmm" in [event.name for event in profiler.function_events or ()]


def test_unwritable_stacks_are_a_warning_after_training(
    blocked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    profiler = HPUProfiler(dirpath=blocked, with_stack=True, export_to_flame_graph=True)

    with pytest.warns(UserWarning, match=r"the stacks .*\.stack could not be written"):
        trainer(tmp_path, profiler).fit(Model(), loader(6))


def test_deleted_model_is_not_an_error(tmp_path: Path) -> None:
    """Lightning passes the model as a weak reference."""
    profiler = HPUProfiler()
    model = Model()
    trainer(tmp_path, profiler).fit(model, loader(6))
    del model
    gc.collect()

    profiler.setup("fit")

    assert profiler._trainer is None
