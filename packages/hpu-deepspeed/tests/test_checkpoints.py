"""Checkpoints of several ranks: saved, resumed, loaded elsewhere and made one file."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpu_core import frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy

from .conftest import OnRanks
from .modules import HAS_NVME, HAS_UNIVERSAL, Classifier, loader, numbers, on_nvme, trainer, whatever_its_size

BATCHES = 5
EPOCHS = 2

STAGES = {
    "0": {"stage": 0},
    "1": {"stage": 1},
    "2": {"stage": 2},
    "3": {"stage": 3},
    "3-offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    # Its options name a folder.
    **({"3-nvme": {}} if HAS_NVME else {}),
}

_deepspeed = frameworks.current().pytorch("utilities.deepspeed")


def _options(folder: str, stage: str) -> dict[str, Any]:
    return STAGES[stage] or on_nvme(str(Path(folder).parent))


def _data(run: Any) -> Any:
    return loader(run.global_rank, run.world_size, BATCHES)


def _trainer(ranks: int, **options: Any) -> Any:
    epochs = options.pop("max_epochs", EPOCHS)
    return trainer(HPUDeepSpeedStrategy(**options), devices=ranks, max_epochs=epochs)


def _save(folder: str, stage: str) -> dict[str, Any]:
    """Train for two epochs, save after the first, and return what must be the same after resuming there."""
    path, options = Path(folder, f"{stage}.ckpt"), _options(folder, stage)
    module = Classifier()
    run = _trainer(2, **options, max_epochs=1)
    run.fit(module, _data(run))
    run.save_checkpoint(path)
    # Over what is there, as at the end of each epoch.
    run.save_checkpoint(path)
    tested = _trainer(2, **options).test(module, _data(run))[0]["loss"]
    whole = Classifier()
    run = _trainer(2, **options)
    run.fit(whole, _data(run))
    return {"losses": numbers(whole.losses), "steps": run.global_step, "tested": tested}


def _resume(path: str, options: dict[str, Any], ranks: int) -> dict[str, Any]:
    module = Classifier()
    run = _trainer(ranks, **options)
    run.fit(module, _data(run), ckpt_path=path)
    return {"losses": numbers(module.losses), "steps": run.global_step, "epochs": run.current_epoch}


def _test(path: str, options: dict[str, Any], ranks: int) -> float:
    run = _trainer(ranks, **options)
    return float(run.test(Classifier(), _data(run), ckpt_path=path)[0]["loss"])


def _on_two(folder: str) -> dict[Any, Any]:
    """Save, resume and test every stage on two cards; convert, and load what was converted."""
    found: dict[Any, Any] = {}
    for stage in STAGES:
        path, options = str(Path(folder, f"{stage}.ckpt")), _options(folder, stage)
        with whatever_its_size():
            found["saved", stage] = _save(folder, stage)
            found["resumed", stage] = _resume(path, options, 2)
            found["tested", stage] = _test(path, options, 2)
            if stage == "3-nvme":
                found["resumed", "from nvme"] = _resume(path, STAGES["3"], 2)
                found["resumed", "to nvme"] = _resume(str(Path(folder, "3.ckpt")), options, 2)
    one = str(Path(folder, "one.ckpt"))
    if dist.get_rank() == 0:
        _deepspeed.convert_zero_checkpoint_to_fp32_state_dict(str(Path(folder, "3.ckpt")), one)
    dist.barrier()
    full = {"stage": 3, "load_full_weights": True}
    found["full weights", "3"] = _test(one, full, 2)
    found["files"] = sorted(path.name for path in Path(folder).iterdir())
    return found


_UNIVERSAL_STAGES = ("2", "3") if HAS_UNIVERSAL else ()
_UNIVERSAL = {"checkpoint": {"load_universal": True}, "zero_allow_untested_optimizer": True}


def _on_one(folder: str) -> dict[Any, Any]:
    """Load on one card what two have saved."""
    found: dict[Any, Any] = {}
    for stage in ("0", "2", "3"):
        found["tested", stage] = _test(str(Path(folder, f"{stage}.ckpt")), STAGES[stage], 1)
    found["resumed", "0"] = _resume(str(Path(folder, "0.ckpt")), STAGES["0"], 1)
    for stage in _UNIVERSAL_STAGES:
        config = {"config": {**_UNIVERSAL, "zero_optimization": {"stage": int(stage)}}}
        found["resumed", stage] = _resume(str(Path(folder, f"{stage}-universal.ckpt")), config, 1)
    try:
        _resume(str(Path(folder, "2.ckpt")), STAGES["2"], 1)
    except Exception as error:  # noqa: BLE001 - DeepSpeed's class has no public place.
        found["refused"] = str(error)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the checkpoints are."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def two(on_ranks: OnRanks, folder: Path) -> dict[Any, Any]:
    """What two cards have found."""
    first, _ = on_ranks(_on_two, str(folder))
    return dict(first)


@pytest.fixture(scope="module")
def one(on_ranks: OnRanks, folder: Path, two: dict[Any, Any]) -> dict[Any, Any]:
    """What one card has found, with the checkpoints of two made universal by DeepSpeed's tool."""
    for stage in _UNIVERSAL_STAGES:
        _make_universal(folder / f"{stage}.ckpt", folder / f"{stage}-universal.ckpt")
    (found,) = on_ranks(_on_one, str(folder), count=1)
    return dict(found)


# As `python -m deepspeed.checkpoint.ds_to_universal` where there is no triton, which an older DeepSpeed tries on a GPU
# as soon as it is imported.
_UNIVERSALLY = """
import runpy, sys
sys.modules["triton"] = None
runpy.run_module("deepspeed.checkpoint.ds_to_universal", run_name="__main__", alter_sys=True)
"""


def _make_universal(source: Path, target: Path) -> None:
    # As on a machine without a card.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HPU_SIM", "COV"))}
    paths = ("--input_folder", str(source / "checkpoint"), "--output_folder", str(target / "checkpoint"))
    command = [sys.executable, "-c", _UNIVERSALLY, *paths, "--inject_missing_state"]
    subprocess.run(
        command,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "DS_ACCELERATOR": "cpu"},
        check=True,
        capture_output=True,
        timeout=240,
    )


@pytest.mark.parametrize("stage", STAGES)
def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(stage: str, two: dict[Any, Any]) -> None:
    """Each loss after the checkpoint is that of a training without one."""
    whole, resumed = two["saved", stage], two["resumed", stage]

    assert resumed["losses"] == pytest.approx(whole["losses"][BATCHES:], abs=1e-6)
    assert (resumed["steps"], resumed["epochs"]) == (whole["steps"], EPOCHS)


@pytest.mark.skipif(not HAS_NVME, reason="Requires: DeepSpeed 0.18")
@pytest.mark.parametrize("way", ["from nvme", "to nvme"])
def test_nvme_may_be_begun_and_ended_with(way: str, two: dict[Any, Any]) -> None:
    """A checkpoint is the same with it and without, so that either goes on from the other's."""
    assert two["resumed", way]["losses"] == pytest.approx(two["saved", "3"]["losses"][BATCHES:], abs=1e-5)


@pytest.mark.parametrize("stage", STAGES)
def test_a_test_loads_the_weights(stage: str, two: dict[Any, Any]) -> None:
    """`trainer.test(ckpt_path=...)` measures what was measured before saving."""
    assert two["tested", stage] == pytest.approx(two["saved", stage]["tested"], abs=1e-6)


def test_nothing_is_left_beside_the_checkpoints(two: dict[Any, Any]) -> None:
    """Whatever a checkpoint was before it was whole is gone."""
    assert two["files"] == sorted([*(f"{stage}.ckpt" for stage in STAGES), "one.ckpt"])


def test_full_weights_load_from_one_file(two: dict[Any, Any]) -> None:
    """What was converted to one file loads into ZeRO stage 3 with `load_full_weights`."""
    assert two["full weights", "3"] == pytest.approx(two["saved", "3"]["tested"], abs=1e-6)


def test_the_one_file_is_lightnings(folder: Path, two: dict[Any, Any]) -> None:
    """It loads anywhere, with plain Lightning, in float32 on the CPU."""
    module = Classifier.load_from_checkpoint(folder / "one.ckpt", map_location="cpu", weights_only=False)

    assert {(str(weight.device), weight.dtype) for weight in module.parameters()} == {("cpu", torch.float32)}


@pytest.mark.parametrize("stage", ["0", "2", "3"])
def test_weights_load_on_fewer_cards(stage: str, one: dict[Any, Any], two: dict[Any, Any]) -> None:
    """A test on one card measures what two measured."""
    assert one["tested", stage] == pytest.approx(two["saved", stage]["tested"], abs=1e-6)


@pytest.mark.parametrize("stage", ["0", *_UNIVERSAL_STAGES])
def test_a_training_resumes_on_fewer_cards(stage: str, one: dict[Any, Any], two: dict[Any, Any]) -> None:
    """The losses go on as on two: without ZeRO from the checkpoint itself, with it from one made universal."""
    assert one["resumed", stage]["losses"] == pytest.approx(two["saved", stage]["losses"][BATCHES:], abs=1e-5)


def test_a_partitioned_optimizer_needs_as_many_cards(one: dict[Any, Any]) -> None:
    """DeepSpeed says so where a checkpoint is not universal."""
    assert "used a DP world size of 2 but the current world size is 1" in one["refused"]
