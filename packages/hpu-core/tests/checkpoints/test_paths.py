"""Where a checkpoint of one file is written to and found: paths and URLs, over a link and over an earlier one."""

from pathlib import Path

import pytest
import torch
from fsspec import filesystem

from hpu_core import HPUCheckpointIO


def _save_and_load(path: "Path | str", step: int = 1) -> int:
    plugin = HPUCheckpointIO()
    plugin.save_checkpoint({"step": step, "weights": torch.zeros(1 << (8 + 5 * step))}, path)
    return int(plugin.load_checkpoint(path)["step"])


@pytest.mark.parametrize(
    "path",
    [
        "{}/new/last.ckpt",
        "file://{}/last.ckpt",
        "local://{}/last.ckpt",
        "~/last.ckpt",
        "last.ckpt",
        "memory://last.ckpt",
    ],
)
def test_path(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert [_save_and_load(path.format(tmp_path), step) for step in (1, 2)] == [1, 2]
    assert [file.name for file in tmp_path.rglob("*.ckpt")] == ["last.ckpt"] * (not path.startswith("memory"))
    filesystem("memory").store.clear()


def test_link_is_replaced(tmp_path: Path) -> None:
    """Lightning's, from the last checkpoint to the best one."""
    _save_and_load(tmp_path / "best.ckpt")
    (tmp_path / "last.ckpt").symlink_to("best.ckpt")

    assert _save_and_load(tmp_path / "last.ckpt", 2) == 2
    assert HPUCheckpointIO().load_checkpoint(tmp_path / "best.ckpt")["step"] == 1
