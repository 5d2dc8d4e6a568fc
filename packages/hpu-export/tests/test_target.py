"""Exports to Hugging Face folders, against the models that transformers loads from them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

from hpu_export import StateDictMismatchError, export_checkpoint  # noqa: E402 - skipped without transformers.

_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 64}
_LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    **_TOKENS,
}


def _config(name: str) -> Any:
    if name == "gpt2":
        return transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, **_TOKENS)
    if name == "t5":
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        return transformers.T5Config(**sizes, **_TOKENS)
    return transformers.LlamaConfig(tie_word_embeddings=name == "tied llama", **_LLAMA)


def _auto(name: str) -> Any:
    return transformers.AutoModelForSeq2SeqLM if name == "t5" else transformers.AutoModelForCausalLM


def _save(name: str, folder: Path) -> Any:
    """Save a configuration, and a checkpoint of a LightningModule with the attribute `model`; return the model."""
    torch.manual_seed(5)
    model = _auto(name).from_config(_config(name)).eval()
    config = folder / "config"
    config.mkdir()
    model.config.save_pretrained(config)
    (config / "tokenizer.json").write_text("{}")
    for code in ("modeling.py", "tokenizer.py", "tokenizer_fast.py", "vocab.py", "chat_template.py", "tokenizer.pkl"):
        (config / code).write_text("raise SystemExit")
    values = json.loads((config / "config.json").read_text())
    values |= {"auto_map": {"AutoModel": "modeling.Model"}, "quantization_config": {"quant_method": "fp8"}}
    (config / "config.json").write_text(json.dumps(values))
    state = {f"model._orig_mod.{key}": tensor for key, tensor in model.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3, "hyper_parameters": {"lr": 0.5}}, folder / "last.ckpt")
    return model


@pytest.mark.parametrize("name", ["llama", "tied llama", "gpt2", "t5"])
def test_logits_are_those_of_the_trained_model(name: str, tmp_path: Path) -> None:
    model = _save(name, tmp_path)
    out = export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "config", max_shard_size="20KB")

    loaded, info = _auto(name).from_pretrained(out, output_loading_info=True)
    tokens = torch.arange(16).reshape(2, 8)
    inputs = {"input_ids": tokens, **({"decoder_input_ids": tokens} if name == "t5" else {})}
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    assert not any(info.values())
    assert len(list(out.glob("model-*.safetensors"))) > 1


def test_weights_that_the_target_ties_must_be_equal(tmp_path: Path) -> None:
    _save("llama", tmp_path)
    (tmp_path / "tied").mkdir()
    _config("tied llama").save_pretrained(tmp_path / "tied")

    with pytest.raises(ValueError, match="must be equal, because LlamaForCausalLM"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "tied")
    assert not (tmp_path / "out").exists()


def test_a_folder_has_configuration_of_its_dtype_tokenizer_and_card_and_no_code(tmp_path: Path) -> None:
    _save("llama", tmp_path)
    out = export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "config", dtype="bf16")

    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    config = json.loads((out / "config.json").read_text())
    assert config["torch_dtype"] == "bfloat16"
    # Of the base model: its weights were quantized, these are not.
    assert config.keys().isdisjoint({"auto_map", "quantization_config"})
    assert transformers.AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype is torch.bfloat16
    card = (out / "README.md").read_text()
    assert "| epoch | 3 |" in card
    assert "| lr | 0.5 |" in card


def test_another_configuration_is_an_error_that_lists_the_names(tmp_path: Path) -> None:
    _save("llama", tmp_path)
    (tmp_path / "other").mkdir()
    transformers.LlamaConfig(**{**_LLAMA, "vocab_size": 60, "num_hidden_layers": 1}).save_pretrained(tmp_path / "other")

    with pytest.raises(StateDictMismatchError, match=r"mis-shaped: model.embed_tokens.weight \(64, 32\) for") as error:
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "other")
    assert error.value.missing == []
    assert len(error.value.unexpected) == 9
    assert error.value.misshaped["lm_head.weight"] == ((64, 32), (60, 32))
    assert not (tmp_path / "out").exists()


def test_an_unknown_model_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    torch.save({"weight": torch.ones(1)}, tmp_path / "last.ckpt")

    with pytest.raises(ValueError, match=r"must be a folder with 'config.json'"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "empty")
    with pytest.raises(ValueError, match="local cache or on the Hugging Face hub, got 'nobody/nothing'"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model="nobody/nothing")
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(ValueError, match="must be one that transformers"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "empty")
