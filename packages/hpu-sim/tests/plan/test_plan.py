"""Plans from recordings, and their text and JSON."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
from typing import TYPE_CHECKING

import pytest

from hpu_sim.common.encoding import from_dict
from hpu_sim.device import runtime
from hpu_sim.plan import command, view
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options
from hpu_sim.plan.schema import Plan
from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.recording import ModuleBytes, Recording, TensorInfo

from .programs import MODELS, planned, train

if TYPE_CHECKING:
    from pathlib import Path

    from hpu_sim.plan.schema import StrategyPlan

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")

_ONE = command.Request((Options(),), ("GAUDI2",))


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2, nodes=8), ("train.py",))


@pytest.fixture(scope="module")
def plan(recording: Recording) -> Plan:
    return Plan(command=recording.command, strategies=tuple(planned(recording, each) for each in ("GAUDI2", "GAUDI3")))


def test_gradients_are_reduced_over_all_ranks(plan: Plan) -> None:
    (group,) = plan.strategies[0].step.collectives

    assert (group.name, group.count, group.ranks, group.boxes) == ("allreduce", 1, 16, 8)
    assert group.bytes == 4 * (64 * 128 + 128 + 128 * 10 + 10)


def test_the_step_is_a_range(plan: Plan) -> None:
    time = plan.strategies[0].step

    assert 0 < time.fast_seconds < time.seconds < time.slow_seconds


def test_the_speed_is_that_of_all_cards() -> None:
    """Each of 16 ranks trains two batches of 4 samples of 10 tokens."""
    recording = record_call(functools.partial(train, MODELS["mlp"], wrap="ddp"), Options(devices=2, nodes=8))
    recording.accumulate = 2
    recording.steady.inputs = (TensorInfo("int64", (4, 10), 320),)
    each = planned(recording, "GAUDI2", {"": 2.0})
    rate = each.rate

    assert (rate.samples, rate.tokens) == (128, 1280)
    assert rate.samples_per_second == pytest.approx((128 / each.step.slow_seconds, 128 / each.step.fast_seconds))
    shown = view.document(Plan(command=(), strategies=(each,))).text()
    assert "128 samples per step, 2 batches per rank" in shown
    assert re.search(r"tokens/s +cost of 10\^6 samples$", shown.splitlines()[1])


def test_the_use_of_the_engines_leaves_out_recomputation(recording: Recording) -> None:
    rate = planned(recording, "GAUDI3").rate
    again = copy.deepcopy(recording)
    forward = [each for each in recording.steady.operations if each.phase == "forward"]
    again.steady.operations += [dataclasses.replace(each, phase="backward") for each in forward * 5]
    longer = planned(again, "GAUDI3")

    assert 0 < rate.mfu[0] < 1
    of_the_model = 3 * sum(each.flops for each in forward)
    peak = hardware("GAUDI3").peaks["float32"]
    assert longer.rate.mfu[0] == pytest.approx(of_the_model / peak / longer.step.slow_seconds)


def test_each_column_follows_from_the_others(recording: Recording) -> None:
    """Of the table of all plans, and of that of memory."""
    recording = copy.deepcopy(recording)
    recording.steady.inputs = (TensorInfo("int64", (4, 10), 320),)

    for each in (planned(recording, name, {"": 2.0}) for name in ("GAUDI2", "GAUDI3")):
        step, rate = each.step, each.rate
        ends = step.slow_seconds, step.fast_seconds
        assert rate.samples == each.batch_size * each.accumulate * each.nodes * each.devices
        assert rate.samples_per_second == pytest.approx([rate.samples / end for end in ends])
        assert rate.tokens_per_second == pytest.approx([10 * speed for speed in rate.samples_per_second])
        card_hours = [each.nodes * each.devices * 1e6 / speed / 3600 for speed in rate.samples_per_second]
        assert rate.cost == pytest.approx([2 * hours for hours in card_hours])
        assert sum(row.bytes for row in each.memory.modules) == each.memory.peak_bytes
        assert sum(each.memory.at_peak.values()) == each.memory.peak_bytes


def test_the_largest_costs_have_their_operators(plan: Plan) -> None:
    costs = plan.strategies[0].step.costs

    assert len(costs) >= 3
    assert costs[0].seconds >= costs[1].seconds >= costs[2].seconds
    assert all(each.operators and each.mostly for each in costs if not each.name.startswith("waiting"))


def test_the_json_is_read_back(plan: Plan) -> None:
    assert from_dict(Plan, json.loads(json.dumps(plan.to_dict()))) == plan


def test_every_output_says_that_nothing_was_measured(plan: Plan) -> None:
    assert "predicted, not measured" in view.document(plan).text()
    assert plan.to_dict()["disclaimer"] == "predicted, not measured"


def test_a_plan_that_does_not_fit_says_so(recording: Recording) -> None:
    recording = copy.deepcopy(recording)
    recording.setup.peaks["forward"] = (ModuleBytes("", 0, 200 << 30),)
    plan = Plan(command=(), strategies=(planned(recording, "GAUDI3"),))

    assert not plan.fits
    assert re.search(r"200 GiB +NO", view.document(plan).text())


def test_a_peak_that_leaves_less_than_the_reserve_is_tight(recording: Recording) -> None:
    """A job of 16 ranks on GAUDI3 with 124 of 126.6 GiB needs workspaces and fragments beside them."""
    recording = copy.deepcopy(recording)
    recording.setup.peaks["forward"] = (ModuleBytes("", 0, 124 << 30),)
    plan = Plan(command=(), strategies=(planned(recording, "GAUDI3"),))

    assert not plan.fits
    assert plan.strategies[0].verdict == "tight"
    assert "which tensors do not show: 124.1 GiB to 136.4 GiB of 126.6 GiB" in view.document(plan).text()


def test_lines_end_at_the_width_of_the_terminal(plan: Plan) -> None:
    assert max(map(len, view.document(plan).text(80).splitlines())) <= 80


def test_the_table_has_memory_by_module(recording: Recording) -> None:
    shown = view.document(Plan(command=(), strategies=(planned(recording, "GAUDI3"),))).text()

    assert "memory by module at the peak:" in shown
    assert re.search(r"^    0 +1 +\S+ KiB", shown, re.MULTILINE)


def _sweep(recordings: dict[int, Recording]) -> tuple[list[StrategyPlan], list[Options]]:
    """Return the plans of several batches, of which the one of 3 cannot be planned, and what was recorded."""
    asked: list[Options] = []

    def record(options: Options) -> Recording:
        asked.append(options)
        if options.batch_size == 3:
            raise PlanError("no batch of three")
        return recordings[options.batch_size or 0]

    choices = tuple(Options(batch_size=size) for size in (1, 2, 3))
    plans, _ = command.make_plans(record, command.Request(choices, ("GAUDI2", "GAUDI3"), ranks_best=True))
    return plans, asked


def test_a_sweep_has_the_best_first_and_says_what_cannot_be_planned() -> None:
    """A batch of two takes as long as one of one: launches of the host limit both."""
    recordings = {}
    for size in (1, 2):
        recordings[size] = record_call(functools.partial(train, MODELS["mlp"]), Options())
        recordings[size].steady.inputs = (TensorInfo("float32", (size, 64), 256 * size),)

    plans, asked = _sweep(recordings)
    shown = view.document(Plan(command=(), strategies=tuple(plans))).text()

    assert [each.batch_size for each in asked] == [1, 2, 3]
    assert [each.settings for each in plans] == ["batch 2", "batch 2", "batch 1", "batch 1"]
    assert "batch 3 cannot be planned: no batch of three" in shown
    assert {"batch", "samples/s", "changed"} <= set(shown.splitlines()[1].split())


def test_a_plan_that_does_not_fit_comes_after_one_that_does() -> None:
    recordings = {size: record_call(functools.partial(train, MODELS["mlp"]), Options()) for size in (1, 2)}
    for size, recording in recordings.items():
        recording.steady.inputs = (TensorInfo("float32", (size, 64), 256 * size),)
    recordings[2].setup.peaks["setup"] = (ModuleBytes("", 0, 200 << 30),)

    plans, _ = _sweep(recordings)

    assert [each.fits for each in plans] == [True, True, False, False]


def test_an_error_of_the_program_has_its_own_traceback_and_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text('import torch\n\n\ndef main():\n    {}["data"]\n\n\nmain()\n')
    config = runtime.active_config()

    code = command.run(config, _ONE, str(script), ())

    shown = capsys.readouterr().err
    assert code == 2
    assert f'Traceback (most recent call last):\n  File "{script}", line 8' in shown
    assert "Error: the program itself failed, before its training steps were known:\n" in shown
    assert shown.endswith("KeyError: 'data'\n")


def test_a_script_that_cannot_be_planned_has_an_exit_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")

    assert command.run(runtime.active_config(), _ONE, str(script), ()) == 2
    assert "without a training step" in capsys.readouterr().err
