"""Folders of torch.distributed.checkpoint: chunks of any layout, metadata that is not trusted, and damage."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import state_dict_saver

from hpu_export import _torch, export_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")

_STATE = {"model": {"weight": torch.arange(12.0).reshape(4, 3), "count": torch.tensor(7)}, "step": 3}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of one rank."""
    state_dict_saver.save(_STATE, checkpoint_id=tmp_path / "last.ckpt", no_dist=True)
    return tmp_path / "last.ckpt"


def _export(folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    return load_file(export_checkpoint(folder, folder.parent / "out.safetensors", **options))


def test_weights_are_exported(folder: Path) -> None:
    exported = _export(folder)
    assert exported.keys() == {"weight", "count"}
    assert torch.equal(exported["weight"], _STATE["model"]["weight"])  # type: ignore[index] # Of a dict.


def test_a_state_dict_without_a_key_is_exported(tmp_path: Path) -> None:
    state_dict_saver.save(
        {"layer.weight": torch.ones(2), "bias": torch.ones(1)}, checkpoint_id=tmp_path / "last", no_dist=True
    )
    assert _export(tmp_path / "last").keys() == {"layer.weight", "bias"}


def test_shards_on_another_file_system_are_exported(folder: Path, tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/shards", recursive=True)
    exported = load_file(export_checkpoint("memory://shards", tmp_path / "remote.safetensors"))
    memory.rm("/shards", recursive=True)
    assert torch.equal(exported["weight"], _STATE["model"]["weight"])  # type: ignore[index] # Of a dict.


def _chunked(folder: Path, bounds: list[tuple[int, int, int, int]]) -> None:
    """Rewrite the folder with the weight in chunks: first row, rows, first column, columns."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

    with (folder / ".metadata").open("rb") as file:
        metadata = _torch.load_metadata(file)
    weight = _STATE["model"]["weight"]  # type: ignore[index] # Of a dict.
    entry: Any = metadata.state_dict_metadata["model.weight"]
    entry.chunks = []
    metadata.storage_data = {i: s for i, s in metadata.storage_data.items() if i.fqn != "model.weight"}
    for index, (row, rows, column, columns) in enumerate(bounds):
        name = f"__{index + 1}_0.distcp"
        torch.save(weight[row : row + rows, column : column + columns].clone(), folder / name)
        offsets = torch.Size([row, column])
        entry.chunks.append(ChunkStorageMetadata(offsets, torch.Size([rows, columns])))
        item = _StorageInfo(name, 0, (folder / name).stat().st_size)
        metadata.storage_data[MetadataIndex("model.weight", offsets)] = item
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 1, 0, 3), (1, 3, 0, 3)],
        [(0, 4, 0, 2), (0, 4, 2, 1)],
        [(0, 2, 0, 1), (2, 2, 0, 1), (0, 2, 1, 2), (2, 2, 1, 2)],
        [(0, 3, 0, 1), (3, 1, 0, 1), (0, 1, 1, 2), (1, 3, 1, 2)],
    ],
    ids=["rows", "columns", "both", "staggered"],
)
def test_chunks_of_any_layout_are_joined(bounds: list[tuple[int, int, int, int]], folder: Path) -> None:
    _chunked(folder, bounds)
    assert torch.equal(_export(folder)["weight"], _STATE["model"]["weight"])  # type: ignore[index] # Of a dict.


def test_empty_tensors_are_exported(tmp_path: Path) -> None:
    state_dict_saver.save({"empty": torch.ones(0, 3)}, checkpoint_id=tmp_path / "last", no_dist=True)
    assert _export(tmp_path / "last")["empty"].shape == (0, 3)


def test_chunks_that_do_not_cover_the_tensor_are_refused(folder: Path) -> None:
    _chunked(folder, [(0, 4, 0, 2), (0, 2, 2, 1)])
    with pytest.raises(ValueError, match=r"the shards must have all of 'model.weight'"):
        _export(folder)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "__0_0.distcp").unlink()
    with pytest.raises(ValueError, match=r"must have the shards of all ranks, got .* without __0_0.distcp"):
        _export(folder)


def test_a_truncated_shard_is_named(folder: Path) -> None:
    shard = folder / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"'__0_0.distcp' must have at least .* bytes, got .*: it is cut off"):
        _export(folder)


def test_a_damaged_shard_is_named(folder: Path) -> None:
    shard = folder / "__0_0.distcp"
    shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(ValueError, match=r"'__0_0.distcp' must have 'model.\w+' as its '.metadata' says"):
        _export(folder)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_save_that_did_not_finish_is_refused(folder: Path) -> None:
    (folder / ".metadata").unlink()
    with pytest.raises(ValueError, match="without it: the save did not finish"):
        _export(folder)


def test_shards_of_another_save_are_refused(folder: Path) -> None:
    shutil.copyfile(folder / "__0_0.distcp", folder / "__3_0.distcp")
    with pytest.raises(ValueError, match=r"must have one checkpoint, got .* with __3_0.distcp"):
        _export(folder)


class _Code:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("touched"),)


def test_metadata_is_not_unpickled_as_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    (folder / ".metadata").write_bytes(pickle.dumps(_Code()))
    with pytest.raises(ValueError, match=r"a damaged one in .*: the metadata must describe tensors only, got 'pathlib"):
        _export(folder)
    assert not Path("touched").exists()


def test_run_info_that_are_refused_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    torch.save({"epoch": 3, "callbacks": _Code()}, folder / "meta.pt")
    out = export_checkpoint(folder, folder.parent / "out")
    assert "epoch" not in (out / "README.md").read_text()
    assert not Path("touched").exists()
