"""Private names of Lightning and torch that HPUProfiler overrides or reads.

A renamed method would become dead code without an error; these tests fail instead.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.profiler

from hpu_core import frameworks
from hpu_profiler import HPUProfiler
from hpu_profiler._lightning import PyTorchProfiler, classify_action

from .models import Model, loader, trainer


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_init_kineto", ["self", "profiler_kwargs"]),
        ("_delete_profilers", ["self"]),
        ("setup", ["self", "stage", "local_rank", "log_dir"]),
        ("start", ["self", "action_name"]),
        ("stop", ["self", "action_name"]),
        ("summary", ["self"]),
        ("describe", ["self"]),
    ],
)
def test_overridden_method_has_the_signature_of_its_base(name: str, parameters: list[str]) -> None:
    base, override = getattr(PyTorchProfiler, name), getattr(HPUProfiler, name)

    assert list(inspect.signature(base).parameters) == parameters
    assert list(inspect.signature(override).parameters) == parameters
    assert override is not base


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("_prepare_filename", {"action_name", "extension"}), ("_stats_to_str", {"stats"}), ("teardown", {"stage"})],
)
def test_called_method_of_the_base_has_the_arguments(name: str, arguments: set[str]) -> None:
    assert arguments <= set(inspect.signature(getattr(PyTorchProfiler, name)).parameters)


def test_base_sets_the_attributes() -> None:
    names = "_export_to_chrome _group_by_input_shapes _lightning_module _recording_map _register _row_limit _stage"

    assert {*names.split(), "dirpath", "profiler"} <= vars(PyTorchProfiler(sort_by_key="cpu_time_total")).keys()


def test_base_ends_steps_after_its_step_functions() -> None:
    """HPUProfiler clears the set, so that the base only annotates."""
    assert {"training_step", "validation_step", "test_step", "predict_step"} == PyTorchProfiler.STEP_FUNCTIONS
    assert "STEP_FUNCTIONS" in inspect.getsource(PyTorchProfiler.stop)


def test_module_and_trainer_have_the_attributes(tmp_path: Path) -> None:
    names = "accelerator global_rank max_epochs max_steps node_rank sanity_checking state world_size"
    batches = {f"num_{kind}_batches" for kind in ("predict", "test", "training", "val")}

    assert "_trainer" in vars(Model())
    assert {*names.split(), *batches} <= {*dir(trainer(tmp_path, None))}


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        ("fit", {"training", "validation"}),
        ("validate", {"validation"}),
        ("test", {"test"}),
        ("predict", {"predict"}),
    ],
)
def test_trainer_names_its_actions_as_expected(run: str, kinds: set[str], tmp_path: Path) -> None:
    """Each kind of step has an action for data loading and one for the step."""
    profiler_class: Any = frameworks.current().pytorch("profilers").SimpleProfiler
    profiler = profiler_class(dirpath=tmp_path, filename="actions")
    loaders = (loader(2), loader(2)) if run == "fit" else (loader(2),)

    getattr(trainer(tmp_path, profiler), run)(Model(), *loaders)

    infos = [classify_action(name, run) for name in profiler.recorded_durations]
    assert {info.ends_step for info in infos} - {None} == kinds
    assert {info.starts_step for info in infos if info.ends_step is None} - {None} == kinds


def test_profile_of_torch_has_the_attributes() -> None:
    names = {"action_map", "current_action", "on_trace_ready", "schedule", "step_num"}

    assert names <= vars(torch.profiler.profile()).keys()
    assert torch._C._profiler._ExperimentalConfig(verbose=True) is not None


def test_profile_of_torch_calls_its_schedule_once_for_each_step() -> None:
    steps: list[int] = []

    def schedule(step: int) -> torch.profiler.ProfilerAction:
        steps.append(step)
        return torch.profiler.ProfilerAction.NONE

    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule)
    with profile:
        profile.step()
        profile.step()

    assert steps == [0, 1, 2]


def test_torchs_tree_of_events_has_the_lines_of_calls() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profile:
        torch.ones(1).item()
    pending: list[Any] = list(profile.profiler.kineto_results.experimental_event_tree())
    callers = []
    while pending:
        event = pending.pop()
        pending += event.children
        if event.name.startswith("<built-in method item of Tensor") and event.start_time_ns:
            callers.append(event.extra_fields.caller)

    (caller,) = callers
    assert caller.file_name.endswith("test_private_names.py")
    assert caller.function_name == "test_torchs_tree_of_events_has_the_lines_of_calls"
    assert caller.line_number == test_torchs_tree_of_events_has_the_lines_of_calls.__code__.co_firstlineno + 2
