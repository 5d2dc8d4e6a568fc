"""Checkpoints and live models of every strategy, against the module's weights; helper functions run on ranks."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hpu_export import export_checkpoint, export_model

from .conftest import OnRanks
from .modules import KINDS, train


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


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_exports_of_any_number_of_ranks_equal_the_live_model(
    kind: str, count: int, tmp_path: Path, on_ranks: OnRanks
) -> None:
    _check(kind, tmp_path, count, on_ranks)
