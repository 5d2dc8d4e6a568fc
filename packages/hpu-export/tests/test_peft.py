"""Adapters of PEFT, against PEFT's own files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from hpu_export import export_checkpoint  # noqa: E402 - skipped without PEFT.

# Of transformers 5.23, as PEFT 0.21 uses it.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning",
    "ignore:Setting .save_embedding_layers. to .True.:UserWarning",
    "ignore:Model has .tie_word_embeddings=True.:UserWarning",
    # Of an adapter with biases.
    "ignore:.*LoRA tensor.s. have invalid shape",
)

_LORA: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "more": {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"], "use_rslora": True},
    "biases": {"target_modules": ["q_proj"], "bias": "all"},
    "biases of the layers": {"target_modules": ["q_proj"], "bias": "lora_only"},
    "bias of the adapter": {"target_modules": ["q_proj"], "lora_bias": True},
    "dora": {"target_modules": ["q_proj"], "use_dora": True},
}


@pytest.fixture(scope="module", params=_LORA)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Folder with base model, adapter and checkpoint, and the model with its adapter."""
    folder = tmp_path_factory.mktemp("peft")
    torch.manual_seed(3)
    sizes = {
        "num_key_value_heads": 2,
        "attention_bias": True,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    tokens = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **tokens))
    base.save_pretrained(folder / "base")
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, **_LORA[request.param])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.1)
    torch.save({"state_dict": {f"model.{n}": t for n, t in model.state_dict().items()}}, folder / "last.ckpt")
    model.save_pretrained(folder / "adapter")
    return folder, model


def test_a_kept_adapter_has_the_tensors_that_peft_saves(trained: tuple[Path, Any], tmp_path: Path) -> None:
    folder, model = trained
    options = {"model": folder / "base", "adapter": True, "adapter_config": folder / "adapter"}
    out = export_checkpoint(folder / "last.ckpt", tmp_path / "out", **options)

    exported = load_file(out / "adapter_model.safetensors")
    saved = load_file(folder / "adapter" / "adapter_model.safetensors")
    # PEFT also saves embeddings that an adapter changes.
    assert {name for name in saved if "base_layer.weight" not in name} == exported.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in exported.items())
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base")
    loaded = peft.PeftModel.from_pretrained(base, out)
    tokens = torch.arange(8)[None]
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


def test_a_checkpoint_with_an_adapter_needs_a_decision(trained: tuple[Path, Any], tmp_path: Path) -> None:
    folder, _ = trained
    with pytest.raises(ValueError, match="`adapter` must be True for"):
        export_checkpoint(folder / "last.ckpt", tmp_path / "out", model=folder / "base")
    with pytest.raises(ValueError, match="`adapter_config` must be the folder or file"):
        export_checkpoint(folder / "last.ckpt", tmp_path / "out", model=folder / "base", adapter=True)


def test_an_adapter_that_peft_would_load_otherwise_is_refused(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, tie_word_embeddings=True
    )
    base = transformers.LlamaForCausalLM(config)
    base.save_pretrained(tmp_path / "base")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True)
    torch.save({"state_dict": peft.get_peft_model(base, lora).state_dict()}, tmp_path / "last.ckpt")

    with pytest.raises(ValueError, match="must not have `ensure_weight_tying`"):
        export_checkpoint(
            tmp_path / "last.ckpt", tmp_path / "out", model=tmp_path / "base", adapter=True, adapter_config=lora
        )

    assert not (tmp_path / "out").exists()
