"""Trains a small model of each kind in the planner's corpus, and prints all that an observation might change.

Arguments are the algorithm of attention, and "profile" to record each training. Every model trains as it is, and those
of `_COMPILED` once more as compiled.
"""

import contextlib
import hashlib
import json
import sys
import warnings

import torch
import transformers
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

attention, observation = sys.argv[1:]

_TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DECODER = {**_TEXT, "num_key_value_heads": 1}
_SEQ = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
_IMAGE = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_COMPILED = ("Bert", "Llama", "ViT")


def tokens():
    return torch.randint(3, 64, (2, 12), device="hpu")


def images():
    return torch.rand(2, 3, 32, 32, device="hpu")


def text(name, options, head="ForCausalLM"):
    config = getattr(transformers, f"{name}Config")(**options)
    ids = tokens()
    labels = ids[:, 0] % 2 if head == "ForSequenceClassification" else ids
    return f"{name}{head}", config, {"input_ids": ids, "labels": labels}


def models():
    yield text("Bert", _TEXT, "ForSequenceClassification")
    yield text("Roberta", {**_TEXT, "pad_token_id": 1, "max_position_embeddings": 32}, "ForMaskedLM")
    gpt2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    yield "GPT2LMHeadModel", transformers.GPT2Config(**gpt2), dict.fromkeys(("input_ids", "labels"), tokens())
    for name in ("Llama", "Mistral", "Qwen2"):
        yield text(name, _DECODER)
    yield text("Mixtral", {**_DECODER, "num_local_experts": 4})
    t5 = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    yield "T5ForConditionalGeneration", t5, {"input_ids": tokens(), "labels": tokens()}
    whisper = transformers.WhisperConfig(
        vocab_size=64, num_mel_bins=8, max_source_positions=16, max_target_positions=16, encoder_attention_heads=2,
        decoder_attention_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None, **_SEQ,
    )  # fmt: skip
    sound = torch.rand(2, 8, 32, device="hpu")
    yield "WhisperForConditionalGeneration", whisper, {"input_features": sound, "labels": tokens()}
    yield (
        "ViTForImageClassification",
        transformers.ViTConfig(**_IMAGE, intermediate_size=64),
        {
            "pixel_values": images(),
            "labels": torch.tensor([0, 1], device="hpu"),
        },
    )
    clip = transformers.CLIPConfig(
        text_config=_TEXT, vision_config={**_IMAGE, "intermediate_size": 64}, projection_dim=16
    )
    yield "CLIPModel", clip, {"input_ids": tokens(), "pixel_values": images(), "return_loss": True}
    segformer = transformers.SegformerConfig(
        depths=[1] * 4, hidden_sizes=[8, 16, 16, 32], decoder_hidden_size=16, num_labels=3
    )
    yield (
        "SegformerForSemanticSegmentation",
        segformer,
        {
            "pixel_values": images(),
            "labels": torch.randint(0, 3, (2, 32, 32), device="hpu"),
        },
    )
    wav2vec2 = transformers.Wav2Vec2Config(
        **_TEXT, conv_dim=[8, 8], conv_stride=[5, 2], conv_kernel=[10, 3], num_feat_extract_layers=2,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.0,
    )  # fmt: skip
    wave = torch.rand(2, 400, device="hpu")
    yield "Wav2Vec2ForCTC", wav2vec2, {"input_values": wave, "labels": torch.randint(3, 64, (2, 4), device="hpu")}


def train(name, config, inputs, compiles):
    torch.manual_seed(3)
    counters.clear()
    model = getattr(transformers, name)._from_config(config, attn_implementation=attention).to("hpu")
    call = torch.compile(model, backend="hpu_backend") if compiles else model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    activities = [ProfilerActivity.CPU, ProfilerActivity.HPU]
    recorded = profile(activities=activities) if observation == "profile" else contextlib.nullcontext()
    losses = []
    with warnings.catch_warnings(record=True) as given, recorded:
        warnings.simplefilter("always")
        for _ in range(3):
            loss = call(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
    weights = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    return {
        "model": f"{name}, compiled" if compiles else name,
        "losses": losses,
        "weights": hashlib.sha256(weights).hexdigest(),
        "random numbers": [torch.rand(2).tolist(), torch.rand(2, device="hpu").tolist()],
        "warnings": [[warning.category.__name__, str(warning.message)] for warning in given],
        "graphs": [counters["stats"]["unique_graphs"], counters["graph_break"].total()],
    }


torch.set_num_threads(1)
torch.manual_seed(5)
for each in list(models()):
    for compiles in (False, True) if each[0].startswith(_COMPILED) else (False,):
        print(json.dumps(train(*each, compiles)), flush=True)
