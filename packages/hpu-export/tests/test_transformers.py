"""Models whose files have other names than their modules, or whose experts are joined in the module."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers", minversion="5")

from hpu_export import export_checkpoint  # noqa: E402 - skipped without transformers.

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 64,
}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _make(name: str) -> Any:
    torch.manual_seed(2)
    if name == "neox":
        return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**_SIZES, **_TOKENS))
    config = transformers.MixtralConfig(num_key_value_heads=2, num_local_experts=3, **_SIZES, **_TOKENS)
    return transformers.MixtralForCausalLM(config)


@pytest.mark.parametrize("kind", ["module", "files"])
@pytest.mark.parametrize("name", ["neox", "mixtral"])
def test_an_export_has_what_transformers_saves(name: str, kind: str, tmp_path: Path) -> None:
    """The checkpoint has the names of the module, or those of other programs, which are those of files."""
    model = _make(name)
    model.save_pretrained(tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    state = model.state_dict() if kind == "module" else saved
    torch.save({"state_dict": {f"model.{key}": tensor for key, tensor in state.items()}}, tmp_path / "last.ckpt")

    out = export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "saved")
    exported = load_file(out / "model.safetensors")

    assert saved.keys() != model.state_dict().keys()
    assert exported.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[key]) for key, tensor in exported.items())
    tokens = torch.arange(8)[None]
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert torch.equal(loaded.eval()(tokens).logits, model.eval()(tokens).logits)
