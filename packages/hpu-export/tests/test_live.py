"""Checkpoints and live models of every strategy, against the module's weights; helper functions run on ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_core import frameworks
from hpu_export import export_checkpoint, export_model
from hpu_fsdp import FabricHPUFSDPStrategy

from .conftest import OnRanks
from .modules import KINDS, make_network, train

_lightning = frameworks.current()


def _train_and_export(kind: str, folder: Path, count: int) -> None:
    trainer, module = train(kind, count)
    trainer.save_checkpoint(folder / "last.ckpt")
    export_model(trainer, folder / "live.safetensors")
    if trainer.is_global_zero:
        torch.save(module.final, folder / "final.pt")


def _check(kind: str, folder: Path, count: int, on_ranks: OnRanks) -> None:
    on_ranks(_train_and_export, kind, folder, count, count=count, seconds=240)
    export_checkpoint(folder / "last.ckpt", folder / "file.safetensors")
    final = torch.load(folder / "final.pt")

    for file in ("file", "live"):
        exported = load_file(folder / f"{file}.safetensors")
        assert exported.keys() == final.keys()
        for name, tensor in final.items():
            assert exported[name].dtype is tensor.dtype, (file, name)
            assert torch.equal(exported[name], tensor), (file, name)


@pytest.mark.parametrize("kind", KINDS)
def test_exports_of_two_ranks_equal_the_live_model(kind: str, tmp_path: Path, on_ranks: OnRanks) -> None:
    _check(kind, tmp_path, 2, on_ranks)


def _export_fabric(folder: Path) -> None:
    fabric: Any = _lightning.fabric().Fabric(
        accelerator="hpu", devices=2, strategy=FabricHPUFSDPStrategy(state_dict_type="sharded")
    )
    fabric.launch()
    module = fabric.setup_module(make_network())
    export_model(fabric, folder / "out.safetensors", module=module)


def test_a_fabric_is_exported_by_all_ranks(tmp_path: Path, on_ranks: OnRanks) -> None:
    on_ranks(_export_fabric, tmp_path)

    exported = load_file(tmp_path / "out.safetensors")
    assert exported.keys() == make_network().state_dict().keys()
    assert all(torch.equal(exported[name], tensor) for name, tensor in make_network().state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["out.safetensors"]


def test_an_owner_must_be_a_trainer_or_fabric_with_its_module(tmp_path: Path) -> None:
    fabric: Any = _lightning.fabric().Fabric(accelerator="cpu", devices=1)
    with pytest.raises(TypeError, match="`owner` must be a Trainer or Fabric, got 'Linear'"):
        export_model(torch.nn.Linear(1, 1), tmp_path / "out")
    with pytest.raises(ValueError, match="`module` must be what"):
        export_model(fabric, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_exports_of_any_number_of_ranks_equal_the_live_model(
    kind: str, count: int, tmp_path: Path, on_ranks: OnRanks
) -> None:
    _check(kind, tmp_path, count, on_ranks)


def _export_twice(folder: Path) -> str:
    trainer, _ = train("ddp", 2)
    export_model(trainer, folder / "best")
    try:
        export_model(trainer, folder / "best")
    except (FileExistsError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_an_existing_target_stays(tmp_path: Path, on_ranks: OnRanks) -> None:
    """The error reaches all ranks, so none waits for rank 0."""
    first, second = on_ranks(_export_twice, tmp_path, seconds=120)

    assert first.startswith("FileExistsError: `to` must not exist")
    assert second.startswith("RuntimeError: rank 0 could not export the model: `to` must not exist")
    assert load_file(tmp_path / "best" / "model.safetensors").keys() == make_network().state_dict().keys()
