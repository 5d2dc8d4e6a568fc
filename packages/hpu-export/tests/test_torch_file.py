"""Checkpoints in one file: Lightning's, Fabric's, state dicts, averaged weights, and files that are refused."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_core import frameworks
from hpu_export import export_checkpoint

from .modules import Module, make_loader, make_network, make_trainer

_callbacks: Any = frameworks.current().pytorch("callbacks")
_WEIGHTS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.ones(2, dtype=torch.bfloat16)}


def _export(folder: Path, content: Any, **options: Any) -> dict[str, torch.Tensor]:
    torch.save(content, folder / "last.ckpt")
    options.setdefault("overwrite", True)
    return load_file(export_checkpoint(folder / "last.ckpt", folder / "out.safetensors", **options))


@pytest.mark.parametrize(
    "content",
    [
        _WEIGHTS,
        {"state_dict": _WEIGHTS, "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": []}]},
        {"model": _WEIGHTS, "optimizer": {"state": {0: {"step": torch.ones(1)}}, "param_groups": []}, "step": 4},
        {"state_dict": {f"model._orig_mod.{name}": tensor for name, tensor in _WEIGHTS.items()}},
        {"state_dict": {f"_forward_module.module.{name}": tensor for name, tensor in _WEIGHTS.items()}},
        {"state_dict": {f"model.{n}".replace("layer.", "layer._fsdp_wrapped_module."): t for n, t in _WEIGHTS.items()}},
    ],
    ids=["state dict", "Trainer", "Fabric", "compiled", "DDP", "FSDP"],
)
def test_weights_are_found_and_lose_their_wrappers(content: Any, tmp_path: Path) -> None:
    exported = _export(tmp_path, content)

    assert exported.keys() == _WEIGHTS.keys()
    assert all(torch.equal(exported[name], tensor) for name, tensor in _WEIGHTS.items())


def test_file_of_torch_before_1_6_is_read(tmp_path: Path) -> None:
    """It is no zip archive, and cannot be mapped."""
    torch.save(_WEIGHTS, tmp_path / "last.ckpt", _use_new_zipfile_serialization=False)
    exported = load_file(export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out.safetensors"))

    assert all(torch.equal(exported[name], tensor) for name, tensor in _WEIGHTS.items())


def test_several_models_need_a_key(tmp_path: Path) -> None:
    content = {"generator": _WEIGHTS, "critic": {"weight": torch.zeros(1)}}
    with pytest.raises(ValueError, match="under one key, got 'critic', 'generator'"):
        _export(tmp_path, content)
    with pytest.raises(ValueError, match="`key` must be one of"):
        _export(tmp_path, content, key="other")
    assert _export(tmp_path, content, key="critic").keys() == {"weight"}


def test_prefix_and_ignore_select_names(tmp_path: Path) -> None:
    state = {"net.weight": torch.ones(1), "net.loss.weight": torch.ones(1), "teacher.weight": torch.ones(1)}

    assert _export(tmp_path, state, prefix="net.", ignore=["net.loss.*"]).keys() == {"weight"}
    with pytest.raises(ValueError, match=r"`prefix` must be the start of a weight's name, such as 'net.weight'"):
        _export(tmp_path, state, prefix="model.")


def test_names_that_become_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must differ without their wrappers, got a.weight, a._orig_mod.weight"):
        _export(tmp_path, {"a.weight": torch.ones(1), "a._orig_mod.weight": torch.ones(1)})


def test_tied_weights_are_written_once_and_load(tmp_path: Path) -> None:
    from safetensors.torch import load_model

    model: Any = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    exported = _export(tmp_path, model.state_dict())
    other: Any = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    other[1].weight = other[0].weight
    load_model(other, tmp_path / "out.safetensors")

    assert exported.keys() == {"0.weight", "0.bias", "1.bias"}
    assert torch.equal(other[1].weight, model[0].weight)


def test_floating_point_weights_get_the_dtype(tmp_path: Path) -> None:
    exported = _export(tmp_path, {**_WEIGHTS, "count": torch.tensor(3)}, dtype="float16")

    assert {name: tensor.dtype for name, tensor in exported.items()} == {
        "layer.weight": torch.float16,
        "layer.bias": torch.float16,
        "count": torch.int64,
    }


@pytest.mark.skipif(not hasattr(_callbacks, "EMAWeightAveraging"), reason="Requires: Lightning 2.6")
def test_averaged_weights_are_exported_and_the_current_ones_on_request(tmp_path: Path) -> None:
    checkpoint = _callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="last")
    average = _callbacks.EMAWeightAveraging(decay=0.5)
    trainer = make_trainer(callbacks=[average, checkpoint], enable_checkpointing=True)
    module = Module()
    trainer.fit(module, make_loader())
    source = tmp_path / "last.ckpt"

    averaged = load_file(export_checkpoint(source, tmp_path / "averaged.safetensors"))
    current = load_file(export_checkpoint(source, tmp_path / "current.safetensors", weights="current"))

    # The callback gives the module the averaged weights at the end.
    assert torch.equal(averaged["head.weight"], module.model.head.weight)
    state = torch.load(source, weights_only=True)["current_model_state"]
    assert torch.equal(current["head.weight"], state["model.head.weight"])
    assert not torch.equal(current["head.weight"], averaged["head.weight"])
    assert averaged.keys() == current.keys() == make_network().state_dict().keys()


class _Code:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("touched"),)


def test_objects_are_not_unpickled_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="which can run any code that it contains"):
        _export(tmp_path, {"state_dict": _WEIGHTS, "callbacks": _Code()})
    assert not Path("touched").exists()
    assert _export(tmp_path, {"state_dict": _WEIGHTS, "callbacks": _Code()}, weights_only=False)
    assert Path("touched").exists()


@pytest.mark.parametrize("missing", [1, 50, 100, 800])
def test_a_truncated_file_is_one_sentence(missing: int, tmp_path: Path) -> None:
    torch.save(_WEIGHTS, tmp_path / "last.ckpt")
    (tmp_path / "last.ckpt").write_bytes((tmp_path / "last.ckpt").read_bytes()[:-missing])
    with pytest.raises(ValueError, match=r"must be a whole file of torch.save, got one that is damaged"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out")


def test_a_file_without_weights_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must have a dict of weights, got 'list'"):
        _export(tmp_path, [1])
    with pytest.raises(ValueError, match="must have weights under one key, got none"):
        _export(tmp_path, {"step": 1})
    with pytest.raises(ValueError, match="weights must be dense tensors, got 'weight'"):
        _export(tmp_path, {"weight": torch.eye(2).to_sparse()})
