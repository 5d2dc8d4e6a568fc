"""Safetensors as a source."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpu_export import _safetensors, export_checkpoint


def test_an_export_is_exported_again_in_another_dtype(tmp_path: Path) -> None:
    state = {f"{i}.weight": torch.full((100,), float(i)) for i in range(4)}
    torch.save(state, tmp_path / "last.ckpt")
    shards = export_checkpoint(tmp_path / "last.ckpt", tmp_path / "shards", max_shard_size="1KB")
    out = export_checkpoint(shards, tmp_path / "out.safetensors", dtype="bf16")

    assert len(list(shards.glob("*.safetensors"))) == 2
    assert {n: t.float() for n, t in load_file(out).items()}.keys() == state.keys()
    assert all(torch.equal(tensor.float(), state[name]) for name, tensor in load_file(out).items())


@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64", "float8_e8m0fnu"])
def test_every_dtype_of_torch_is_read(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"torch {torch.__version__} has no {name}")
    save_file({"weight": torch.ones(2).to(dtype)}, tmp_path / "a.safetensors")
    out = export_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors")

    assert load_file(out)["weight"].dtype is dtype


def test_a_dtype_that_torch_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "a.safetensors")
    monkeypatch.delitem(_safetensors.DTYPES, "F32")
    with pytest.raises(ValueError, match=r"must have a dtype of torch .*, got 'weight' with F32"):
        export_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(1)}, tmp_path / "model-1.safetensors")
    index = {"weight_map": {"weight": "model-1.safetensors", "bias": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"'model-2\.safetensors'"):
        export_checkpoint(tmp_path, tmp_path.parent / "out")


def test_a_truncated_file_is_one_sentence(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(9)}, tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-4])
    with pytest.raises(ValueError, match="must be a whole file of safetensors"):
        export_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors")
