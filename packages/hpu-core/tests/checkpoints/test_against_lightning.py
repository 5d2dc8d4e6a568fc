"""What happens to a checkpoint of one file, here and with Lightning's plugin: the same, or an error for silence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec import filesystem
from packaging.version import Version

from hpu_core import HPUCheckpointIO, frameworks
from hpu_core._lightning import TorchCheckpointIO
from hpu_testing.kills import limited_files


def _save(plugin: Any, path: "Path | str", step: int = 1) -> None:
    plugin.save_checkpoint({"step": step, "weights": torch.zeros(1 << (8 + 5 * step))}, path)


def _load(plugin: Any, path: "Path | str") -> int:
    return int(plugin.load_checkpoint(path)["step"])


def _at(path: str) -> Callable[[Any, Path], object]:
    def save_and_load(plugin: Any, folder: Path) -> object:
        _save(plugin, path.format(folder))
        return _load(plugin, path.format(folder)), [file.name for file in folder.rglob("*.ckpt")]

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


def _on_a_full_disk(plugin: Any, folder: Path) -> object:
    _save(plugin, folder / "last.ckpt")
    with pytest.raises(OSError, match="File too large"), limited_files(1 << 16):
        _save(plugin, folder / "last.ckpt", 2)
    return _load(plugin, folder / "last.ckpt"), [file.name for file in folder.iterdir()]


_THE_FILE = (1, ["last.ckpt"])


@pytest.mark.parametrize(
    ("scenario", "with_lightning", "here"),
    [
        *(
            (_at(path), _THE_FILE, _THE_FILE)
            for path in ("{}/new/last.ckpt", "file://{}/last.ckpt", "local://{}/last.ckpt", "~/last.ckpt", "last.ckpt")
        ),
        (_at("memory://run/last.ckpt"), (1, []), (1, [])),
        (_of_two_runs, 2, 2),
        (_over_a_link, (1, 2), (1, 2)),
        (_over_a_folder, "silently inside of it", IsADirectoryError),
        (_on_a_full_disk, _THE_FILE, _THE_FILE),
    ],
)
def test_saves(
    scenario: Callable[[Any, Path], object],
    with_lightning: object,
    here: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[object] = []
    # Earlier Lightnings differ.
    is_current = frameworks.current().version >= Version("2.6")
    for plugin in (HPUCheckpointIO(), TorchCheckpointIO())[: 1 + is_current]:
        folder = tmp_path / type(plugin).__name__
        folder.mkdir()
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.chdir(folder)
        try:
            found.append(scenario(plugin, folder))
        except OSError as error:
            found.append(type(error))
    filesystem("memory").store.clear()

    assert found == [here, with_lightning][: 1 + is_current]
