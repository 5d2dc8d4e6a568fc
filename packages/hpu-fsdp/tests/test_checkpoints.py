"""Checkpoints on two simulated devices; the helper functions run on both ranks."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from hpu_core import SingleHPUStrategy, frameworks
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy
from hpu_fsdp._checkpoint import METADATA

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, make_loader, make_network, make_trainer, train
from .test_model_parallel import Sharded
from .test_training import _Fabric

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

_lightning = frameworks.current()
_ModelCheckpoint = _lightning.pytorch("callbacks").ModelCheckpoint


def _fit(steps: int, strategy: Any, resume: Path | None = None, folder: Path | None = None, **options: Any) -> Any:
    """Train, saving each step's checkpoint in `folder`; return the losses and the Trainer."""
    callbacks = [_ModelCheckpoint(folder, every_n_train_steps=2, filename="{step}")] if folder else []
    # One batch per epoch: the DataLoader begins an epoch on resuming, which Lightning before 2.5 counts as its rest.
    trainer = make_trainer(
        limit_train_batches=1,
        strategy=strategy,
        max_steps=steps,
        callbacks=callbacks,
        enable_checkpointing=bool(callbacks),
        **options,
    )
    losses = train(ImageClassifier(optimizer="adamw"), trainer, ckpt_path=resume)
    return losses, trainer


def _sharding(kind: Any, **options: Any) -> HPUFSDPStrategy:
    return HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type=kind, **options)


def _save_and_resume(folder: Path) -> dict[str, Any]:
    """Return the losses of uninterrupted and resumed training, and the files."""
    full = _fit(6, _sharding("full"))[0]
    results: dict[str, Any] = {"expected": full[4:]}
    kinds: dict[str, dict[str, Any]] = {
        "full": {"kind": "full"},
        "sharded": {"kind": "sharded"},
        "async": {"kind": "sharded", "async_save": True},
    }
    for name, options in kinds.items():
        _fit(4, _sharding(**options), folder=folder / name)
        saved = folder / name / "step=4.ckpt"
        results[name] = _fit(6, _sharding("full"), resume=saved)[0]
        source = saved / METADATA if saved.is_dir() else saved
        results[f"{name} keys"] = set(torch.load(source, map_location="cpu", weights_only=False))
        results[f"{name} files"] = sorted(path.name for path in (folder / name).iterdir())
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the checkpoints."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def resumed(folder: Path, on_ranks: OnRanks) -> list[dict[str, Any]]:
    """Losses and files by kind of checkpoint."""
    return on_ranks(_save_and_resume, folder, seconds=150)


def _resume_with_fewer_rows_than_ranks(folder: Path) -> tuple[list[float], list[float]]:
    """Return the losses of uninterrupted and resumed training; the last layer has one row, of which rank 1 has none."""

    def fit(steps: int, folder: Path, resume: Path | None = None) -> list[float]:
        module = ImageClassifier(optimizer="adamw")
        module.net = torch.nn.Sequential(module.net, torch.nn.PReLU())
        callbacks = [_ModelCheckpoint(folder, every_n_train_steps=2, filename="{step}")]
        trainer = make_trainer(
            limit_train_batches=1,
            strategy=HPUFSDPStrategy(auto_wrap_policy={torch.nn.PReLU}, state_dict_type="sharded"),
            max_steps=steps,
            callbacks=callbacks,
            enable_checkpointing=True,
        )
        return train(module, trainer, ckpt_path=resume)

    expected = fit(4, folder / "whole")
    fit(2, folder / "cut")
    return expected[2:], fit(4, folder / "cut", resume=folder / "cut" / "step=2.ckpt")


def test_parameters_with_fewer_rows_than_ranks_resume(on_ranks: OnRanks, tmp_path: Path) -> None:
    """On those without a row, torch would look for CUDA."""
    for expected, resumed in on_ranks(_resume_with_fewer_rows_than_ranks, tmp_path, seconds=150):
        assert resumed == pytest.approx(expected, abs=1e-6)


def _resume_without_states(folder: Path) -> dict[str, Any]:
    """Return the loss after a checkpoint of plain SGD, uninterrupted and resumed, and the learning rate, by kind."""
    strategies: dict[str, tuple[Any, Any]] = {
        "FSDP, full": (ImageClassifier, lambda: _sharding("full")),
        "FSDP, sharded": (ImageClassifier, lambda: _sharding("sharded")),
        "FSDP2, one file": (
            Sharded,
            lambda: HPUModelParallelStrategy(
                data_parallel_size=2, tensor_parallel_size=1, save_distributed_checkpoint=False
            ),
        ),
    }
    results = {}
    for name, (module, strategy) in strategies.items():
        options: dict[str, Any] = {"limit_train_batches": 1, "enable_checkpointing": False}
        whole = train(module(optimizer="stateless"), make_trainer(strategy=strategy(), max_steps=4, **options))
        trainer = make_trainer(strategy=strategy(), max_steps=2, **options)
        train(module(optimizer="stateless"), trainer)
        trainer.optimizers[0].param_groups[0]["lr"] = 0.05
        trainer.save_checkpoint(folder / name)
        trainer = make_trainer(strategy=strategy(), max_steps=4, **options)
        resumed = train(module(optimizer="stateless"), trainer, ckpt_path=folder / name)
        results[name] = whole[2], resumed[0], trainer.optimizers[0].param_groups[0]["lr"]
    return results


def test_optimizers_without_state_resume(tmp_path: Path, on_ranks: OnRanks) -> None:
    """Lightning would raise an IndexError."""
    for rank in on_ranks(_resume_without_states, tmp_path, seconds=150):
        assert {name: (pytest.approx(loss), 0.05) for name, (loss, _, _) in rank.items()} == {
            name: (resumed, rate) for name, (_, resumed, rate) in rank.items()
        }


def test_lightning_has_the_private_name_for_states_of_optimizers() -> None:
    assert callable(_lightning.fabric("strategies.model_parallel")._rekey_optimizer_state_if_needed)


@pytest.mark.parametrize("kind", ["full", "sharded", "async"])
def test_training_resumes(kind: str, resumed: list[dict[str, Any]]) -> None:
    """ModelCheckpoint keeps the last checkpoint, and training continues from it."""
    for rank in resumed:
        assert rank[kind] == pytest.approx(rank["expected"], abs=1e-6)
        assert rank[f"{kind} files"] == ["step=4.ckpt"]


def _resume_alone(saved: Path) -> list[float]:
    """Resume on one device."""
    losses: list[float] = _fit(6, _sharding("full"), resume=saved, devices=1)[0]
    return losses


@pytest.mark.parametrize("kind", ["full", "sharded"])
@pytest.mark.usefixtures("resumed")
def test_training_resumes_on_another_number_of_cards(kind: str, folder: Path, on_ranks: OnRanks) -> None:
    [losses] = on_ranks(_resume_alone, folder / kind / "step=4.ckpt", count=1)

    # A single device trains on other batches; what counts is that the restored loss is below the first one's.
    assert len(losses) == 2
    assert losses[0] < 2.3


def _resume_from_weights(path: Path) -> None:
    """Try to continue a training from a folder with weights, and no states of optimizers."""
    save: Any = state_dict_saver.save
    # torch 2.2 has to be told that there is one process.
    options = {"no_dist": True} if "no_dist" in inspect.signature(save).parameters else {}
    save({"model": make_network().state_dict()}, storage_writer=FileSystemWriter(path), **options)
    torch.save({}, path / METADATA)
    with pytest.raises(ValueError, match="must have states of the optimizers to continue a training"):
        _fit(2, _sharding("full"), resume=path, devices=1)


def test_training_does_not_continue_from_weights_alone(tmp_path: Path, on_ranks: OnRanks) -> None:
    # After an error, rank 0 of several waits until the others know of it.
    on_ranks(_resume_from_weights, tmp_path, count=1)


def _save_with_fabric(folder: Path) -> dict[str, Any]:
    """Save with Fabric and load into another module."""
    results: dict[str, Any] = {}
    for kind in ("sharded", "full"):
        first = _Fabric(state_dict_type=kind)
        first.train()
        path = folder / kind
        state = {"model": first.network, "optimizer": first.optimizer, "step": 6, "loss": torch.ones(1, device="hpu")}
        first.fabric.save(path, state)
        if path.is_dir():
            (path / "tokenizer.json").touch()
        first.fabric.save(path, state)
        expected = first.train()
        second = _Fabric(state_dict_type=kind)
        rest = {"model": second.network, "optimizer": second.optimizer, "step": 0}
        remainder = second.fabric.load(path, rest)
        results[kind] = (expected, second.train(), rest["step"], str(remainder["loss"].device))
    results["files"] = sorted(path.name for path in folder.iterdir())
    results["others"] = (folder / "sharded" / "tokenizer.json").exists()
    return results


def test_fabric_saves_and_loads(tmp_path: Path, on_ranks: OnRanks) -> None:
    """A checkpoint replaces an older one, but no file of others in its folder, and its tensors are on the CPU."""
    for results in on_ranks(_save_with_fabric, tmp_path, seconds=120):
        assert results.pop("files") == ["full", "sharded"]
        assert results.pop("others")
        for expected, losses, step, device in results.values():
            assert losses == pytest.approx(expected, abs=1e-6)
            assert (step, device) == (6, "cpu")


def _save_plain_checkpoint(path: Path) -> None:
    """Train on one device without FSDP and save."""
    trainer = make_trainer(strategy=SingleHPUStrategy(), devices=1, max_steps=2)
    trainer.fit(ImageClassifier(optimizer="adamw"), make_loader())
    trainer.save_checkpoint(path)


def _evaluate(path: Path) -> int:
    return len(_fit(4, _sharding("full"), resume=path)[0])


def test_checkpoint_of_one_card_without_fsdp_resumes(tmp_path: Path, on_ranks: OnRanks) -> None:
    on_ranks(_save_plain_checkpoint, tmp_path / "plain.ckpt", count=1)

    assert on_ranks(_evaluate, tmp_path / "plain.ckpt") == [2, 2]


def test_async_save_needs_sharded_checkpoints() -> None:
    with pytest.raises(ValueError, match="`async_save` must be False for full checkpoints, got True"):
        HPUFSDPStrategy(async_save=True)


def _save_one_file_over_a_folder(folder: Path) -> None:
    """Save sharded, then in one file, with Fabric."""
    for kind in ("sharded", "full"):
        run = _Fabric(state_dict_type=kind)
        run.fabric.save(folder / "fabric", {"model": run.network, "optimizer": run.optimizer})


def test_one_file_replaces_a_sharded_checkpoint(tmp_path: Path, on_ranks: OnRanks) -> None:
    on_ranks(_save_one_file_over_a_folder, tmp_path)

    assert {path.name: path.is_file() for path in tmp_path.iterdir()} == {"fabric": True}
