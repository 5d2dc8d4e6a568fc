"""Training step of a published job, with transformers and the bridge's fused optimizer, for judge.py.

    PT_HPU_LAZY_MODE=1 hpu-sim plan --devices 8 --save recordings/H026.rec program.py H026

``--devices`` is the job's number of cards; a job in eager mode has PT_HPU_LAZY_MODE=0, one under ``torch.compile``
``--compile`` as well. Jobs of points.json have the fields of :class:`Job`. It needs transformers and peft.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hpu_sim import plan

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Job:
    """What was trained, and how.

    Attributes:
        batch: Samples per card and micro-batch.
        length: Tokens per sample; 0 where the model fixes it.
        weights: Type of the weights.
        autocast: Whether the forward pass runs under autocast to bfloat16.
        train: "all", "lora", "norms", or "head".
        cards: Cards of one box.
        zero: Stage of ZeRO; 0 for data parallelism by DDP.
        accumulate: Micro-batches per optimizer step.
        mode: "lazy", "compile" or "eager".
        splits_passes: Whether ``mark_step`` ends a graph between forward and backward.
        reads_loss: Whether the host reads the loss in every step.
        no_optimizer: Whether the optimizer's work is left out, because it runs once per many micro-batches.
        fused_attention: Whether attention is one operator.
        recompute: Whether layers are recomputed in the backward pass.
        float8: Whether products of weights run in float8.
        softmax_bf16: Whether attention takes its softmax in the type of its input and not in float32: by
            optimum-habana's ``attn_softmax_bf16``, or because transformers did before version 5 (seen in 4.49).
    """

    batch: int
    length: int = 0
    weights: str = "float32"
    autocast: bool = True
    train: str = "all"
    cards: int = 1
    zero: int = 0
    accumulate: int = 1
    mode: str = "lazy"
    splits_passes: bool = False
    reads_loss: bool = False
    no_optimizer: bool = False
    fused_attention: bool = False
    recompute: bool = False
    float8: bool = False
    softmax_bf16: bool = False


def _sizes(layers: int, hidden: int, heads: int, ffn: int, **others: Any) -> dict[str, Any]:
    names = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": ffn}
    return {**names, **others}


#: Class and sizes of the models by their names in points.json.
MODELS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "gemma-2b": ("Gemma", _sizes(18, 2048, 8, 16384, num_key_value_heads=1, vocab_size=256000, head_dim=256)),
    "llama-7b": ("Llama", _sizes(32, 4096, 32, 11008, num_key_value_heads=32, vocab_size=32000)),
    "llama-70b": ("Llama", _sizes(80, 8192, 64, 28672, num_key_value_heads=8, vocab_size=32000)),
    "mpt-7b": ("Llama", _sizes(32, 4096, 32, 10922, num_key_value_heads=32, vocab_size=50432)),
    "mistral-7b": ("Mistral", _sizes(32, 4096, 32, 14336, num_key_value_heads=8, vocab_size=32000)),
    "qwen2-7b": ("Qwen2", _sizes(28, 3584, 28, 18944, num_key_value_heads=4, vocab_size=152064)),
    "swin-base": ("Swin", {
        "image_size": 224, "patch_size": 4, "window_size": 7, "embed_dim": 128, "num_heads": [4, 8, 16, 32],
        "depths": [2, 2, 18, 2],
    }),
    "vit-base": ("ViT", _sizes(12, 768, 12, 3072, image_size=224, patch_size=16)),
    "esm1b": ("Esm", _sizes(
        33, 1280, 20, 5120, vocab_size=33, pad_token_id=1, mask_token_id=32, position_embedding_type="absolute",
        max_position_embeddings=1026, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )),
    "roberta-large": ("Roberta", _sizes(
        24, 1024, 16, 4096, vocab_size=50265, max_position_embeddings=514, type_vocab_size=1,
    )),
}  # fmt: skip
_HEADS: Final = {
    "Swin": "ForImageClassification", "ViT": "ForImageClassification", "Esm": "ForSequenceClassification",
    "Roberta": "ForQuestionAnswering",
}  # fmt: skip
# Models whose norms and rotations are the bridge's kernels in optimum-habana (seen in 1.17).
_WITH_KERNELS: Final = frozenset({"Llama", "Mistral", "Qwen2"})


def make_model(kind: str, sizes: dict[str, Any], job: Job) -> nn.Module:
    """Return a model with random weights."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes)
    # Under torch's flash attention, "sdpa" is one operator, as the bridge's FusedSDPA.
    config._attn_implementation = "sdpa" if job.fused_attention else "eager"  # noqa: SLF001 - as `from_pretrained` does
    made: nn.Module = getattr(transformers, kind + _HEADS.get(kind, "ForCausalLM"))(config)
    made.to(getattr(torch, job.weights))
    if job.recompute:
        made.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator] # transformers'
    trained = _choose_trained(made.train(), job)
    if job.float8:
        _convert_to_float8(trained)
    return trained


def _convert_to_float8(model: nn.Module) -> None:
    """Give the layers of a decoder to Intel's transformer engine, whose products need multiples of 16."""
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and name != "lm_head" and min(layer.weight.shape) % 16 == 0:
                made = te.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
                made.weight, made.bias = layer.weight, layer.bias
                setattr(parent, name, made)


def _choose_trained(model: nn.Module, job: Job) -> nn.Module:
    if job.train == "lora":
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "v_proj"])
        return get_peft_model(model, config)
    word = {"norms": "norm", "head": "classifier"}.get(job.train, "")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(word in name and parameter.requires_grad)
    return model


def make_batch(kind: str, job: Job) -> dict[str, Tensor]:
    """Return a batch on the host; its values are never read."""
    size = job.batch
    tokens, labels = (torch.zeros(*sizes, dtype=torch.int64) for sizes in ((size, job.length), (size,)))
    if kind in {"Swin", "ViT"}:
        return {"pixel_values": torch.zeros(size, 3, 224, 224, dtype=getattr(torch, job.weights)), "labels": labels}
    if kind == "Roberta":
        return {"input_ids": tokens, "start_positions": labels, "end_positions": labels}
    return {"input_ids": tokens, "labels": labels if kind == "Esm" else tokens}


def train(kind: str, sizes: dict[str, Any], job: Job) -> None:
    """Train as optimum-habana's Trainer does."""
    from habana_frameworks.torch import core
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    mark_step = core.mark_step if job.mode == "lazy" else lambda: None
    bare = make_model(kind, sizes, job).to("hpu")
    trained = [each for each in bare.parameters() if each.requires_grad]
    network, optimizer = _distribute(bare, FusedAdamW(trained, lr=1e-4), job)
    clip = FusedClipNorm(trained, 1.0)

    for _ in range(3):
        with plan.step(), _kernels(kind, job):
            for micro in range(job.accumulate):
                batch = {name: each.to("hpu") for name, each in make_batch(kind, job).items()}
                is_last = job.zero or job.cards == 1 or micro == job.accumulate - 1
                # What is recomputed is in float8 too.
                with contextlib.nullcontext() if is_last else network.no_sync(), te.fp8_autocast(enabled=job.float8):
                    with torch.autocast("hpu", dtype=torch.bfloat16, enabled=job.autocast):
                        loss = network(**batch).loss
                    if job.splits_passes:
                        mark_step()
                    network.backward(loss) if job.zero else loss.backward()
                    mark_step()
            if not job.no_optimizer:
                if not job.zero:
                    clip.clip_norm(trained)
                optimizer.step()
                mark_step()
            if not job.zero:
                optimizer.zero_grad(set_to_none=True)
            if job.reads_loss:
                loss.item()


def _distribute(network: nn.Module, optimizer: Any, job: Job) -> tuple[Any, Any]:
    """Return a model and its optimizer for a job: with DDP, or DeepSpeed's engine as optimum-habana configures it."""
    if not job.zero:
        if job.cards == 1:
            return network, optimizer
        torch.distributed.init_process_group("hccl")
        wrapped = nn.parallel.DistributedDataParallel(
            network, bucket_cap_mb=230, gradient_as_bucket_view=True, find_unused_parameters=False
        )
        return wrapped, optimizer
    import deepspeed

    zero = {"stage": job.zero, "overlap_comm": False, "contiguous_gradients": False, "reduce_scatter": False}
    batches = {"train_micro_batch_size_per_gpu": job.batch, "gradient_accumulation_steps": job.accumulate}
    others = {"bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True}
    config = {**batches, **others, "zero_optimization": zero}
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config, dist_init_required=False)
    return engine, engine


@contextlib.contextmanager
def _kernels(kind: str, job: Job) -> Iterator[None]:
    """Take attention, softmax, norms and rotations as the job does: by the bridge's kernels, or by torch."""
    from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV2
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    plain = nn.functional.softmax

    def softmax(inputs: Tensor, dim: int, **_: Any) -> Tensor:
        return plain(inputs, dim=dim)

    def normalize(self: Any, states: Tensor) -> Tensor:
        inputs = states.to(self.weight.dtype)
        normalized: Tensor = FusedRMSNorm.apply(inputs, self.weight, self.variance_epsilon)
        return normalized.to(states.dtype)

    def rotate(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        angles = cosine.unsqueeze(1), sine.unsqueeze(1)
        return tuple(RotaryPosEmbeddingHelperV2.apply(each, *angles, None) for each in (query, key))

    attention = SDPBackend.FLASH_ATTENTION if job.fused_attention else SDPBackend.MATH
    replaced: list[tuple[Any, str, Any]] = [(nn.functional, "softmax", softmax)] if job.softmax_bf16 else []
    if kind in _WITH_KERNELS:
        module = importlib.import_module(f"transformers.models.{kind.lower()}.modeling_{kind.lower()}")
        replaced += [
            (getattr(module, f"{kind}RMSNorm"), "forward", normalize),
            (module, "apply_rotary_pos_emb", rotate),
        ]
    with sdpa_kernel(attention), contextlib.ExitStack() as stack:
        for each in replaced:
            stack.enter_context(mock.patch.object(*each))
        yield


def main(name: str) -> None:
    """Train the job of a point."""
    points = json.loads((Path(__file__).parent / "points.json").read_text(encoding="utf-8"))["points"]
    (point,) = (each for each in points if each["id"] == name)
    train(*MODELS[point["model"]], Job(**point["job"]))


if __name__ == "__main__":
    main(sys.argv[1])
