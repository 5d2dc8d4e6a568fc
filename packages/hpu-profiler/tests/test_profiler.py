"""HPUProfiler in a Trainer without a card."""

import gc
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.profiler
from torch.profiler import ProfilerAction

from hpu_core import frameworks
from hpu_profiler import HPUProfiler
from hpu_profiler.trace.model import Trace
from hpu_profiler.trace.reader import find_traces, read_trace

from .models import Model, loader, trainer


def _traces(folder: Path) -> list[Trace]:
    return [read_trace(path) for path in find_traces([folder])]


def _steps(trace: Trace) -> list[int]:
    return [int(step.name.rpartition("#")[2]) for step in trace.steps]


def test_it_is_a_profiler_of_the_framework() -> None:
    """Code that asks for PyTorchProfiler gets it."""
    assert issubclass(HPUProfiler, frameworks.current().pytorch("profilers").PyTorchProfiler)


def test_a_fit_leaves_a_trace_of_the_scheduled_steps(tmp_path: Path) -> None:
    """Whole batches, numbered from 0; without a card those of the host alone."""
    trainer(tmp_path, HPUProfiler()).fit(Model(), loader(8))

    (trace,) = _traces(tmp_path)
    names = {operator.name for operator in trace.operators}
    assert _steps(trace) == [2, 3, 4]
    assert trace.device_events == []
    assert trace.stage == "training"
    assert {"aten::addmm", "aten::mm"} <= names


def test_a_schedule_of_the_users_is_followed(tmp_path: Path) -> None:
    """From the first step on, if it says so."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, skip_first=3)
    trainer(tmp_path, HPUProfiler(schedule=schedule)).fit(Model(), loader(8))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [4, 5]


def test_a_schedule_that_forgets_to_save_loses_nothing(tmp_path: Path) -> None:
    """Torch itself would warn and throw away what it recorded."""

    def schedule(step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if step in {1, 2} else ProfilerAction.NONE

    trainer(tmp_path, HPUProfiler(schedule=schedule)).fit(Model(), loader(6))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [1, 2]


def test_everything_can_be_recorded(tmp_path: Path) -> None:
    """Without a schedule, from the first step to the last."""
    trainer(tmp_path, HPUProfiler(schedule=None)).fit(Model(), loader(3))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [0, 1, 2]


def test_traces_take_turns(tmp_path: Path) -> None:
    """A long run keeps the newest of them."""
    profiler = HPUProfiler(schedule=None, max_steps_per_trace=2, max_traces=2)
    trainer(tmp_path, profiler).fit(Model(), loader(8))

    assert [_steps(trace) for trace in _traces(tmp_path)] == [[4, 5], [6, 7]]


def test_validation_is_recorded_by_itself(tmp_path: Path) -> None:
    """In a file of its own; trying it out before training counts for nothing."""
    trainer(tmp_path, HPUProfiler(), num_sanity_val_steps=2).fit(Model(), loader(6), loader(7))

    assert {trace.stage: _steps(trace) for trace in _traces(tmp_path)} == {
        "training": [2, 3, 4],
        "validation": [2, 3, 4],
    }


def test_validation_between_recorded_steps_shows_in_their_trace(tmp_path: Path) -> None:
    """And leaves their number as it is; it is recorded by itself later."""
    run = trainer(tmp_path, HPUProfiler(), val_check_interval=3, num_sanity_val_steps=0)
    run.fit(Model(), loader(9), loader(7))

    found = {trace.stage: trace for trace in _traces(tmp_path)}
    names = [span.name for span in found["training"].spans]
    assert _steps(found["training"]) == [2, 3, 4]
    assert sum(name.endswith(".validation_step") for name in names) == 7
    assert _steps(found["validation"]) == [2, 3, 4]


def test_a_long_validation_does_not_fill_the_memory(tmp_path: Path) -> None:
    """A recording of training that it interrupts ends."""
    run = trainer(tmp_path, HPUProfiler(max_steps_per_trace=4), val_check_interval=3, num_sanity_val_steps=0)
    run.fit(Model(), loader(9), loader(7))

    (trace,) = (trace for trace in _traces(tmp_path) if trace.stage == "training")
    assert _steps(trace) == [2]


def test_training_does_not_show_in_the_trace_of_validation(tmp_path: Path) -> None:
    """Which ends with its loop, however few steps that has."""
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=0, warmup=0, active=5, skip_first=6))
    run = trainer(tmp_path, profiler, val_check_interval=1, limit_val_batches=4, num_sanity_val_steps=0)
    run.fit(Model(), loader(3), loader(4))

    (trace,) = (trace for trace in _traces(tmp_path) if trace.stage == "validation")
    assert _steps(trace) == [9, 10]
    assert not any(
        span.name == "Optimizer.step#SGD.step" and trace.window[0] < span.start < trace.window[1]
        for span in trace.spans
    )


def test_a_run_that_is_too_short_for_the_default_is_recorded_whole(tmp_path: Path) -> None:
    """As a try with two batches is."""
    trainer(tmp_path, HPUProfiler()).fit(Model(), loader(2))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [0, 1]


def test_a_schedule_that_never_records_is_said(tmp_path: Path) -> None:
    """With what it waits for."""
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=20, warmup=1, active=1))

    with pytest.warns(UserWarning, match="recorded nothing: there were 3 training steps, .* after 21 steps"):
        trainer(tmp_path, profiler).fit(Model(), loader(3))


def test_actions_of_the_users_show_in_the_trace(tmp_path: Path) -> None:
    """By `profile`, or by `start` and `stop`."""
    profiler = HPUProfiler()
    trainer(tmp_path, profiler).fit(Model(profiler=profiler), loader(6))

    (trace,) = _traces(tmp_path)
    names = [span.name for span in trace.spans]
    assert names.count("[pl][profile]my_custom_action") == 3
    assert names.count("[pl][profile]another_action") == 3


def test_it_works_without_a_trainer(tmp_path: Path) -> None:
    """Everything from the first action to the description is recorded."""
    profiler = HPUProfiler(dirpath=tmp_path, filename="mine")
    with profiler.profile("my_custom_action"):
        torch.ones(3) + 1
    profiler.describe()

    (trace,) = _traces(tmp_path)
    assert "[pl][profile]my_custom_action" in {span.name for span in trace.spans}
    assert "aten::add" in (tmp_path / "mine.txt").read_text()


def test_modules_show_in_the_trace_where_asked_for(tmp_path: Path) -> None:
    """While it is recorded; no hook stays behind."""
    model = Model()
    trainer(tmp_path, HPUProfiler(record_module_names=True)).fit(model, loader(6))

    (trace,) = _traces(tmp_path)
    names = [span.name for span in trace.spans]
    assert names.count("[pl][module]torch.nn.modules.activation.ReLU: layers.1") == 3
    assert not model.layers[1]._forward_hooks


def test_the_summary_says_what_the_trace_says(tmp_path: Path) -> None:
    """One row for each operator, with its calls."""
    profiler = HPUProfiler(filename="perf-logs", row_limit=-1)
    trainer(tmp_path, profiler).fit(Model(), loader(6))

    (trace,) = _traces(tmp_path)
    (path,) = tmp_path.glob("fit-perf-logs*.txt")
    rows = {line.split()[0]: line.split() for line in path.read_text().splitlines() if line.startswith("aten::")}
    assert rows.keys() == {operator.name for operator in trace.operators if operator.name.startswith("aten::")}
    assert int(rows["aten::addmm"][1]) == sum(operator.name == "aten::addmm" for operator in trace.operators) == 6


def test_without_a_file_the_summary_goes_to_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And without traces, too."""
    with caplog.at_level("INFO"):
        trainer(tmp_path, HPUProfiler(export_to_chrome=False)).fit(Model(), loader(6))

    assert "FIT Profiler Report" in caplog.text
    assert "aten::addmm" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("export", [True, False])
def test_the_summary_can_be_had_after_the_run(export: bool, tmp_path: Path) -> None:
    """It is what was written, also where no trace is left."""
    profiler = HPUProfiler(filename="perf-logs", export_to_chrome=export)
    trainer(tmp_path, profiler).fit(Model(), loader(6))

    (path,) = tmp_path.glob("*.txt")
    assert profiler.summary() == path.read_text()
    assert "aten::addmm" in profiler.summary()


@pytest.mark.parametrize("key", sorted(HPUProfiler.AVAILABLE_SORT_KEYS))
def test_the_summary_is_sorted(key: str, tmp_path: Path) -> None:
    """By every key that is offered."""
    profiler = HPUProfiler(dirpath=tmp_path, sort_by_key=key)
    with profiler.profile("work"):
        torch.ones(3) + 1

    assert "aten::add" in profiler.summary()


def test_the_summary_tells_memory_and_shapes(tmp_path: Path) -> None:
    """Where they were recorded."""
    profiler = HPUProfiler(dirpath=tmp_path, profile_memory=True, record_shapes=True, group_by_input_shapes=True)
    with profiler.profile("work"):
        torch.ones(256).add(torch.ones(256))

    (row,) = (line for line in profiler.summary().splitlines() if line.startswith("aten::add "))
    assert "[256], [256]" in row
    assert row.endswith("  1 KiB")


def test_stacks_become_a_flame_graph(tmp_path: Path) -> None:
    """A line for each stack, as flame graph tools take it."""
    profiler = HPUProfiler(filename="flames", with_stack=True, export_to_flame_graph=True)
    trainer(tmp_path, profiler).fit(Model(), loader(6))

    (path,) = tmp_path.glob("*.stack")
    assert "training_step" in path.read_text()


def test_a_handler_of_the_users_is_called(tmp_path: Path) -> None:
    """Beside our own."""
    seen: list[Any] = []
    trainer(tmp_path, HPUProfiler(on_trace_ready=seen.append)).fit(Model(), loader(6))

    assert len(seen) == len(_traces(tmp_path)) == 1


@pytest.mark.parametrize("fails_at", [0, 3])
def test_a_training_that_fails_leaves_a_trace(fails_at: int, tmp_path: Path) -> None:
    """With the steps that ended; the error is the training's own."""
    profiler = HPUProfiler(schedule=torch.profiler.schedule(wait=0, warmup=0, active=9))
    run = trainer(tmp_path, profiler, callbacks=[frameworks.current().pytorch("callbacks").Callback()])

    with pytest.raises(RuntimeError, match="as told"):
        run.fit(Model(fails_at), loader(8))

    (trace,) = _traces(tmp_path)
    assert _steps(trace) == list(range(fails_at))


def test_an_interpreter_that_ends_leaves_a_trace(tmp_path: Path) -> None:
    """Also where no callback tells that the training failed."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
from tests.models import Model, loader, trainer
from hpu_profiler import HPUProfiler
trainer(Path({str(tmp_path)!r}), HPUProfiler(schedule=None)).fit(Model(3), loader(8))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)

    assert "as told" in done.stderr
    (trace,) = _traces(tmp_path)
    assert _steps(trace) == [0, 1, 2]


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A place where no folder can be made, whoever runs the tests."""
    blocked = tmp_path / "blocked"
    blocked.write_text("in the way")
    return blocked


@pytest.mark.parametrize("filename", [None, "perf-logs"])
def test_a_folder_that_cannot_be_written_is_an_error_after_training(
    filename: str | None, unwritable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is whole by then; what was recorded is not lost."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = trainer(tmp_path, HPUProfiler(dirpath=unwritable, filename=filename))

    with pytest.raises(OSError, match=r"HPUProfiler: the trace .*blocked.* could not be written: .*lies at"):
        run.fit(Model(), loader(6))

    assert run.global_step == 6
    assert len(list(tmp_path.glob("hpu-profiler-*/*.pt.trace.json"))) == 1


def test_a_disk_that_fills_up_is_an_error_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that may not grow stand for it: torch itself says nothing of what it could not write."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = trainer(tmp_path, HPUProfiler())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, before[1]))
    try:
        with pytest.raises(OSError, match=r"HPUProfiler: the trace .* could not be written: .*not whole.*full"):
            run.fit(Model(), loader(6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert run.global_step == 6
    assert not list(tmp_path.rglob("*.json"))


def test_stacks_that_cannot_be_written_are_told_after_training(
    unwritable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a trace is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    profiler = HPUProfiler(dirpath=unwritable, with_stack=True, export_to_flame_graph=True)

    with pytest.raises(OSError, match=r"the stacks .*\.stack could not be written"):
        trainer(tmp_path, profiler).fit(Model(), loader(6))


def test_a_trace_that_is_gone_is_missing_in_the_summary_alone(tmp_path: Path) -> None:
    """Who takes it away has it."""

    def take_away(_: object) -> None:
        for path in find_traces([tmp_path]):
            path.unlink()

    run = trainer(tmp_path, HPUProfiler(on_trace_ready=take_away))

    with pytest.warns(UserWarning, match="the summary lacks a trace"):
        run.fit(Model(), loader(6))


def test_a_model_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """Lightning holds it by a weak reference."""
    profiler = HPUProfiler()
    model = Model()
    trainer(tmp_path, profiler).fit(model, loader(6))
    del model
    gc.collect()

    profiler.setup("fit")

    assert profiler._trainer is None


def test_it_can_be_sent_to_other_processes() -> None:
    """A Trainer that starts its processes itself sends it along."""
    assert pickle.loads(pickle.dumps(HPUProfiler(filename="perf-logs"))).filename == "perf-logs"  # noqa: S301 - our own


def test_one_profiler_serves_several_runs(tmp_path: Path) -> None:
    """Each begins anew."""
    profiler = HPUProfiler()
    run = trainer(tmp_path, profiler)
    run.fit(Model(), loader(6))
    run.validate(Model(), loader(6), verbose=False)

    assert [(trace.path.name.split("-")[0], trace.stage) for trace in _traces(tmp_path)] == [
        ("fit", "training"),
        ("validate", "validation"),
    ]


def test_files_of_ranks_on_several_nodes_differ(tmp_path: Path) -> None:
    """They may share a disk: files are named by the rank among all, not by that on the machine."""

    class Trainer:
        global_rank, world_size, node_rank = 9, 16, 1
        accelerator = None
        sanity_checking = False

    class Module:
        _trainer = Trainer()

    profiler = HPUProfiler(dirpath=tmp_path, filename="perf-logs")
    profiler._lightning_module = Module()  # type: ignore[assignment] # What is asked of it.
    profiler.setup("fit", local_rank=1)
    assert profiler._prepare_filename() == "fit-perf-logs-9.txt"
    assert profiler._about["node"] == 1


def test_habana_profile_concerns_nobody_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the CPU does not ask for it."""
    monkeypatch.setenv("HABANA_PROFILE", "1")

    trainer(tmp_path, HPUProfiler()).fit(Model(), loader(6))

    assert len(_traces(tmp_path)) == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sort_by_key": "cuda_time"}, ValueError, "`sort_by_key` must be one of .*hpu_time_total.* got 'cuda_time'"),
        ({"max_traces": 0}, ValueError, "`max_traces` must be a positive int, got 0"),
        ({"max_steps_per_trace": 0}, ValueError, "`max_steps_per_trace` must be a positive int, got 0"),
        ({"export_to_flame_graph": True}, ValueError, "needs `with_stack=True`"),
        ({"record_shape": True}, TypeError, r"take no \['record_shape'\]"),
        ({"schedule": "always"}, TypeError, "`schedule` must be a function"),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """When the profiler is made, not when the training ends."""
    with pytest.raises(error, match=message):
        HPUProfiler(**options)


def test_nothing_is_recorded_outside_of_the_window(tmp_path: Path) -> None:
    """Not even torch's profiler is there, but from the end of the first step to that of the last recorded one."""
    profiler = HPUProfiler()
    seen: list[bool] = []

    class Watching(frameworks.current().pytorch("callbacks").Callback):  # type: ignore[misc] # As Model.
        def on_train_batch_end(self, *_: object) -> None:
            seen.append(profiler.profiler is not None)

    trainer(tmp_path, profiler, callbacks=[Watching()]).fit(Model(), loader(8))

    assert seen == [True, True, True, True, False, False, False, False]
