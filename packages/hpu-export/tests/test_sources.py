"""Recognition of checkpoints by path and URL."""

from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file

from hpu_export import export_checkpoint


def test_a_remote_file_is_exported(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(3)}, tmp_path / "last.ckpt")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "last.ckpt"), "/last.ckpt")
    out = export_checkpoint("memory://last.ckpt", tmp_path / "out.safetensors")
    memory.rm("/last.ckpt")

    assert torch.equal(load_file(out)["weight"], torch.ones(3))


def test_two_checkpoints_in_one_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "latest").write_text("checkpoint")
    (tmp_path / "last" / ".metadata").write_bytes(b"")
    with pytest.raises(ValueError, match=r"got .* with shards of torch.distributed.checkpoint and DeepSpeed's files"):
        export_checkpoint(tmp_path / "last", tmp_path / "out")


def test_a_folder_of_files_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.ckpt", "b.ckpt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"with 'a.ckpt', 'b.ckpt': name the file"):
        export_checkpoint(tmp_path, tmp_path.parent / "out")


def test_a_folder_without_a_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must have shards .* or safetensors, got .* without them"):
        export_checkpoint(tmp_path, tmp_path.parent / "out")
