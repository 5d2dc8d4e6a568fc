"""Tests of checkpoints of several ranks: saving, resuming, loading elsewhere and converting."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from hpu_core import frameworks
from hpu_core.checkpoints import folders
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.fork_server import forks
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import (
    SUPPORTS_NVME,
    SUPPORTS_UNIVERSAL,
    Classifier,
    loader,
    no_min_aio_size,
    nvme_options,
    trainer,
)

BATCHES = 2
EPOCHS = 2

STAGES = {
    "0": {"stage": 0},
    "1": {"stage": 1},
    "2": {"stage": 2},
    "3": {"stage": 3},
    "3-offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    # The options depend on a temporary directory, see `_options`.
    **({"3-nvme": {}} if SUPPORTS_NVME else {}),
}

_utilities = frameworks.current().pytorch("utilities.deepspeed")


def _options(folder: str, stage: str) -> dict[str, Any]:
    return STAGES[stage] or nvme_options(str(Path(folder).parent))


def _data(run: Any) -> Any:
    return loader(run.global_rank, run.world_size, BATCHES)


def _trainer(ranks: int, **options: Any) -> Any:
    epochs = options.pop("max_epochs", EPOCHS)
    return trainer(HPUDeepSpeedStrategy(**options), devices=ranks, max_epochs=epochs)


def _save(folder: str, stage: str) -> dict[str, Any]:
    """Save after one epoch, train another module for two, and return the values to compare with a resumed training."""
    path, options = Path(folder, f"{stage}.ckpt"), _options(folder, stage)
    module = Classifier()
    run = _trainer(2, **options, max_epochs=1)
    run.fit(module, _data(run))
    run.save_checkpoint(path)
    foreign = folders.foreign_file(path)
    dist.barrier()
    (path / "tokenizer.json").touch()
    # Replaces the first, as ModelCheckpoint does at the end of each epoch.
    run.save_checkpoint(path)
    tested = _trainer(2, **options).test(module, _data(run))[0]["loss"]
    uninterrupted = Classifier()
    run = _trainer(2, **options)
    run.fit(uninterrupted, _data(run))
    return {"losses": to_floats(uninterrupted.losses), "steps": run.global_step, "tested": tested, "foreign": foreign}


def _resume(path: str, options: dict[str, Any], ranks: int) -> dict[str, Any]:
    module = Classifier()
    run = _trainer(ranks, **options)
    run.fit(module, _data(run), ckpt_path=path)
    return {"losses": to_floats(module.losses), "steps": run.global_step, "epochs": run.current_epoch}


def _test(path: str, options: dict[str, Any], ranks: int) -> float:
    run = _trainer(ranks, **options)
    return float(run.test(Classifier(), _data(run), ckpt_path=path)[0]["loss"])


def _run_on_two(folder: str) -> dict[Any, Any]:
    """Save, resume and test every stage on two devices; convert one checkpoint to a single file and load it."""
    found: dict[Any, Any] = {}
    for stage in STAGES:
        path, options = str(Path(folder, f"{stage}.ckpt")), _options(folder, stage)
        with no_min_aio_size():
            found["saved", stage] = _save(folder, stage)
            found["resumed", stage] = _resume(path, options, 2)
            found["tested", stage] = _test(path, options, 2)
            if stage == "3-nvme":
                found["resumed", "from nvme"] = _resume(path, STAGES["3"], 2)
                found["resumed", "to nvme"] = _resume(str(Path(folder, "3.ckpt")), options, 2)
    one = str(Path(folder, "one.ckpt"))
    if dist.get_rank() == 0:
        _utilities.convert_zero_checkpoint_to_fp32_state_dict(str(Path(folder, "3.ckpt")), one)
    dist.barrier()
    full = {"stage": 3, "load_full_weights": True}
    found["full weights", "3"] = _test(one, full, 2)
    found["files"] = sorted(path.name for path in Path(folder).iterdir())
    found["of others"] = {path.parent.stem for path in Path(folder).glob("*/tokenizer.json")}
    return found


_UNIVERSAL_STAGES = ("2", "3") if SUPPORTS_UNIVERSAL else ()
_UNIVERSAL = {"checkpoint": {"load_universal": True}, "zero_allow_untested_optimizer": True}


def _run_on_one(folder: str) -> dict[Any, Any]:
    """Load on one device the checkpoints of two."""
    found: dict[Any, Any] = {}
    for stage in ("0", "2", "3"):
        found["tested", stage] = _test(str(Path(folder, f"{stage}.ckpt")), STAGES[stage], 1)
    found["resumed", "0"] = _resume(str(Path(folder, "0.ckpt")), STAGES["0"], 1)
    for stage in _UNIVERSAL_STAGES:
        config = {"config": {**_UNIVERSAL, "zero_optimization": {"stage": int(stage)}}}
        found["resumed", stage] = _resume(str(Path(folder, f"{stage}-universal.ckpt")), config, 1)
    # DeepSpeed's own error, whose class is where DeepSpeed keeps it.
    with pytest.raises(Exception, match="DP world size of 2 but the current world size is 1"):
        _resume(str(Path(folder, "2.ckpt")), STAGES["2"], 1)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the checkpoints."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def two(on_ranks: OnRanks, folder: Path) -> dict[Any, Any]:
    """Return the results of rank 0 of two."""
    first, _ = on_ranks(_run_on_two, str(folder))
    return dict(first)


@pytest.fixture(scope="module")
def one(on_ranks: OnRanks, folder: Path, two: dict[Any, Any]) -> dict[Any, Any]:
    """Return the results of a single rank, which also loads checkpoints converted to universal ones."""
    with forks():
        for stage in _UNIVERSAL_STAGES:
            _make_universal(folder / f"{stage}.ckpt", folder / f"{stage}-universal.ckpt")
    (found,) = on_ranks(_run_on_one, str(folder), count=1)
    return dict(found)


# `python -m deepspeed.checkpoint.ds_to_universal`, without triton, which older DeepSpeed uses to probe for a GPU.
_DS_TO_UNIVERSAL = """
import runpy, sys, torch
sys.modules["triton"] = None
runpy.run_module("deepspeed.checkpoint.ds_to_universal", run_name="__main__", alter_sys=True)
"""


def _make_universal(source: Path, target: Path) -> None:
    # The conversion must work on a host without HPUs.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HPU_SIM", "COV"))}
    paths = ("--input_folder", str(source / "checkpoint"), "--output_folder", str(target / "checkpoint"))
    command = [sys.executable, "-c", _DS_TO_UNIVERSAL, *paths, "--inject_missing_state"]
    subprocess.run(
        command,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "DS_ACCELERATOR": "cpu"},
        check=True,
        capture_output=True,
        timeout=240,
    )


@pytest.mark.parametrize("stage", STAGES)
def test_resumed_training_equals_an_uninterrupted_one(stage: str, two: dict[Any, Any]) -> None:
    uninterrupted, resumed = two["saved", stage], two["resumed", stage]

    assert resumed["losses"] == pytest.approx(uninterrupted["losses"][BATCHES:], abs=1e-6)
    assert (resumed["steps"], resumed["epochs"]) == (uninterrupted["steps"], EPOCHS)


@pytest.mark.skipif(not SUPPORTS_NVME, reason="Requires: DeepSpeed 0.18")
@pytest.mark.parametrize("direction", ["from nvme", "to nvme"])
def test_resuming_may_add_or_drop_nvme(direction: str, two: dict[Any, Any]) -> None:
    """Checkpoints with and without NVMe have the same format."""
    assert two["resumed", direction]["losses"] == pytest.approx(two["saved", "3"]["losses"][BATCHES:], abs=1e-5)


@pytest.mark.parametrize("stage", STAGES)
def test_trainer_test_loads_the_weights(stage: str, two: dict[Any, Any]) -> None:
    """`trainer.test(ckpt_path=...)` reports the loss from before saving."""
    assert two["tested", stage] == pytest.approx(two["saved", stage]["tested"], abs=1e-6)


def test_second_save_replaces_the_first_and_no_file_of_others(two: dict[Any, Any]) -> None:
    assert two["files"] == sorted([*(f"{stage}.ckpt" for stage in STAGES), "one.ckpt"])
    assert two["of others"] == set(STAGES)


def test_load_full_weights_reads_a_converted_file(two: dict[Any, Any]) -> None:
    assert two["full weights", "3"] == pytest.approx(two["saved", "3"]["tested"], abs=1e-6)


@pytest.mark.parametrize("stage", ["0", "2", "3"])
def test_weights_load_on_fewer_devices(stage: str, one: dict[Any, Any], two: dict[Any, Any]) -> None:
    """A test on one device reports the loss of two."""
    assert one["tested", stage] == pytest.approx(two["saved", stage]["tested"], abs=1e-6)


@pytest.mark.parametrize("stage", ["0", *_UNIVERSAL_STAGES])
def test_training_resumes_on_fewer_devices(stage: str, one: dict[Any, Any], two: dict[Any, Any]) -> None:
    """Stage 0 resumes from the checkpoint itself, the other stages from a universal one."""
    assert one["resumed", stage]["losses"] == pytest.approx(two["saved", stage]["losses"][BATCHES:], abs=1e-5)
