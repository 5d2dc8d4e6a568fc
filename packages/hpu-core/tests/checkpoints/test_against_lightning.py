"""What happens to a checkpoint of one file, here and with Lightning's plugin: the same, or an error for silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUCheckpointIO, frameworks
from hpu_core._lightning import TorchCheckpointIO

# The rows are of this Lightning; earlier ones differ.
IS_CURRENT = frameworks.current().version >= Version("2.6")


def _save(plugin: Any, path: "Path | str", step: int = 1) -> None:
    plugin.save_checkpoint({"step": step, "weights": torch.zeros(1 << (8 + 5 * step))}, path)


def _load(plugin: Any, path: "Path | str") -> int:
    return int(plugin.load_checkpoint(path)["step"])


def _at(path: str) -> Callable[[Any, Path], object]:
    def save_and_load(plugin: Any, folder: Path) -> object:
        _save(plugin, path.format(folder))
        return _load(plugin, path.format(folder))

    return save_and_load


def _over_a_link(plugin: Any, folder: Path) -> object:
    _save(plugin, folder / "best.ckpt")
    (folder / "last.ckpt").symlink_to("best.ckpt")
    _save(plugin, folder / "last.ckpt", 2)
    return _load(plugin, folder / "best.ckpt"), _load(plugin, folder / "last.ckpt")


def _of_two_runs(plugin: Any, folder: Path) -> object:
    for step in (1, 2):
        _save(plugin, folder / "last.ckpt", step)
    return _load(plugin, folder / "last.ckpt")


def _over_a_folder(plugin: Any, folder: Path) -> object:
    (folder / "last.ckpt").mkdir()
    _save(plugin, folder / "last.ckpt")
    return "silently inside of it" if any((folder / "last.ckpt").iterdir()) else "lost"


@pytest.mark.parametrize(
    ("scenario", "with_lightning", "here"),
    [
        (_at("{}/new/last.ckpt"), 1, 1),
        (_at("file://{}/last.ckpt"), 1, 1),
        (_at("memory://run/last.ckpt"), 1, 1),
        (_of_two_runs, 2, 2),
        (_over_a_link, (1, 2), (1, 2)),
        (_over_a_folder, "silently inside of it", IsADirectoryError),
    ],
)
def test_saves(scenario: Callable[[Any, Path], object], with_lightning: object, here: object, tmp_path: Path) -> None:
    found = []
    for plugin in (TorchCheckpointIO(), HPUCheckpointIO()):
        folder = tmp_path / type(plugin).__name__
        folder.mkdir()
        try:
            found.append(scenario(plugin, folder))
        except OSError as error:
            found.append(type(error))

    assert found[1] == here
    if IS_CURRENT:
        assert found[0] == with_lightning


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(
            TorchCheckpointIO(), id="Lightning", marks=pytest.mark.skipif(not IS_CURRENT, reason="Lightning 2.6")
        ),
        pytest.param(HPUCheckpointIO(), id="here"),
    ],
)
def test_a_full_disk_keeps_the_old_checkpoint(plugin: Any, tmp_path: Path) -> None:
    _save(plugin, tmp_path / "last.ckpt")
    with pytest.raises(OSError, match="File too large"):
        _save(plugin, tmp_path / "last.ckpt", 2)

    assert _load(plugin, tmp_path / "last.ckpt") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "last.ckpt"]
