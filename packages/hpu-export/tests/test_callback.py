"""The callback that exports the best checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_core import frameworks
from hpu_export import ExportBestCheckpoint

from .modules import Module, make_loader, make_network, make_trainer

_ModelCheckpoint: Any = frameworks.current().pytorch("callbacks").ModelCheckpoint


def test_the_best_checkpoint_is_exported(tmp_path: Path) -> None:
    checkpoint = _ModelCheckpoint(tmp_path / "saved", every_n_train_steps=1)
    callbacks = [ExportBestCheckpoint(tmp_path / "out.safetensors", dtype="bf16"), checkpoint]
    module = Module()
    make_trainer(callbacks=callbacks, enable_checkpointing=True).fit(module, make_loader())

    exported = load_file(tmp_path / "out.safetensors")
    saved = torch.load(checkpoint.best_model_path, weights_only=True)["state_dict"]
    assert exported.keys() == make_network().state_dict().keys()
    assert torch.equal(exported["head.weight"], saved["model.head.weight"].bfloat16())


def test_a_trial_of_a_script_exports_nothing(tmp_path: Path) -> None:
    make_trainer(callbacks=[ExportBestCheckpoint(tmp_path / "out")], fast_dev_run=True).fit(Module(), make_loader())

    assert not (tmp_path / "out").exists()


def test_an_existing_target_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    trainer = make_trainer(callbacks=[ExportBestCheckpoint(tmp_path / "out")], enable_checkpointing=True)
    with pytest.raises(FileExistsError, match="`to` must not exist"):
        trainer.fit(Module(), make_loader())
    assert trainer.global_step == 0


def test_a_trainer_without_checkpoints_is_refused_before_training(tmp_path: Path) -> None:
    trainer = make_trainer(callbacks=[ExportBestCheckpoint(tmp_path / "out")])
    with pytest.raises(ValueError, match="needs a ModelCheckpoint"):
        trainer.fit(Module(), make_loader())
    assert trainer.global_step == 0


def test_an_unknown_option_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="format"):
        ExportBestCheckpoint(tmp_path / "out", format="onnx")
