"""Round trips with litgpt, and with timm and torchvision from the folder that TORCHVISION_FOLDER names."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_export import export_checkpoint

_PROGRAM = Path(__file__).parent / "programs" / "vision.py"
_MODEL = "pythia-14m"


def test_vision_models_load_the_export(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.environ["TORCHVISION_FOLDER"]}
    command = [sys.executable, str(_PROGRAM), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    [line] = re.findall("^RESULT (.*)", done.stdout, re.MULTILINE)
    results: dict[str, Any] = json.loads(line)
    assert len(results) == 3
    assert all(results.values()), results


@pytest.mark.filterwarnings("ignore:clamping frac to range")  # Of litgpt's progress bar.
def test_litgpt_to_hugging_face_and_back(tmp_path: Path) -> None:
    """The names are converted by litgpt, hpu-export writes the folder, which litgpt reads again."""
    import transformers
    from litgpt import GPT, Config
    from litgpt.scripts.convert_hf_checkpoint import convert_hf_checkpoint
    from litgpt.scripts.convert_lit_checkpoint import convert_lit_checkpoint
    from litgpt.utils import save_config

    config = Config.from_name(_MODEL)
    model: Any = GPT(config).eval()
    lit = tmp_path / "lit"
    lit.mkdir()
    save_config(config, lit)
    torch.save({"model": model.state_dict()}, lit / "lit_model.pth")
    names = tmp_path / "config"
    transformers.GPTNeoXConfig(
        hidden_size=config.n_embd,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.n_layer,
        num_attention_heads=config.n_head,
        vocab_size=config.padded_vocab_size,
        max_position_embeddings=config.block_size,
        layer_norm_eps=config.norm_eps,
        architectures=["GPTNeoXForCausalLM"],
    ).save_pretrained(names)

    plain = load_file(export_checkpoint(lit / "lit_model.pth", tmp_path / "plain.safetensors"))
    convert_lit_checkpoint(lit, tmp_path / "converted")
    out = export_checkpoint(tmp_path / "converted" / "model.pth", tmp_path / _MODEL, model=names, max_shard_size="20MB")

    state = model.state_dict()
    assert plain.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in plain.items())
    tokens = torch.arange(16)[None]
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out)
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, model(tokens), rtol=1e-4, atol=1e-4)
    back = tmp_path / "back"
    shutil.copytree(out, back)
    convert_hf_checkpoint(back, model_name=_MODEL)
    again = torch.load(back / "lit_model.pth", weights_only=True, mmap=True)
    assert again.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.items())
