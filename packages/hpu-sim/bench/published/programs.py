"""Training steps of published models, with transformers and the bridge's fused optimizer, for the planner to record."""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.prediction.recording import Recording
    from hpu_sim.prediction.time_model import Mode

# optimum-habana's default, in MB.
_BUCKET_MB: Final = 230
_STEPS: Final = 3


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
    mode: Mode = "lazy"
    splits_passes: bool = False
    reads_loss: bool = False
    no_optimizer: bool = False
    fused_attention: bool = False
    recompute: bool = False
    float8: bool = False
    softmax_bf16: bool = False


@dataclass(frozen=True)
class Model:
    """Published model.

    Attributes:
        layers: Its number of layers.
        kind: Function of this module that makes it.
        sizes: Arguments of its configuration.
    """

    layers: int
    kind: str
    sizes: dict[str, Any] = field(default_factory=dict)


def _llama(hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, **others: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    return {**sizes, "intermediate_size": ffn, "vocab_size": vocabulary, **others}


_BASE: Final = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
#: Models by their names in points.json.
MODELS: Final = {
    "gemma-2b": Model(18, "Gemma", _llama(2048, 8, 1, 16384, 256000, head_dim=256)),
    "llama-7b": Model(32, "Llama", _llama(4096, 32, 32, 11008, 32000)),
    "llama-70b": Model(80, "Llama", _llama(8192, 64, 8, 28672, 32000)),
    "mpt-7b": Model(32, "Llama", _llama(4096, 32, 32, 10922, 50432)),
    "mistral-7b": Model(32, "Mistral", _llama(4096, 32, 8, 14336, 32000)),
    "qwen2-7b": Model(28, "Qwen2", _llama(3584, 28, 4, 18944, 152064)),
    "swin-base": Model(18, "Swin", {
        "image_size": 224, "patch_size": 4, "window_size": 7, "embed_dim": 128, "num_heads": [4, 8, 16, 32],
    }),
    "vit-base": Model(12, "ViT", {**_BASE, "image_size": 224, "patch_size": 16}),
    "ast": Model(12, "AST", {**_BASE, "max_length": 128, "num_mel_bins": 128}),
    "wav2vec2-base": Model(12, "Wav2Vec2", {**_BASE, "apply_spec_augment": False, "layerdrop": 0.0}),
    "esm1b": Model(33, "Esm", {
        "hidden_size": 1280, "num_attention_heads": 20, "intermediate_size": 5120, "vocab_size": 33, "pad_token_id": 1,
        "mask_token_id": 32, "position_embedding_type": "absolute", "max_position_embeddings": 1026,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }),
    "roberta-large": Model(24, "Roberta", {
        "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 50265,
        "max_position_embeddings": 514, "type_vocab_size": 1,
    }),
    "whisper-small": Model(12, "Whisper", {
        "d_model": 768, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072,
        "decoder_ffn_dim": 3072, "vocab_size": 51865,
    }),
}  # fmt: skip
_HEADS: Final = {
    "Swin": "ForImageClassification", "ViT": "ForImageClassification", "AST": "ForAudioClassification",
    "Wav2Vec2": "ForSequenceClassification", "Esm": "ForSequenceClassification",
    "Roberta": "ForQuestionAnswering", "Whisper": "ForConditionalGeneration",
}  # fmt: skip
_CAUSAL: Final = frozenset({"Gemma", "Llama", "Mistral", "Qwen2"})
# Models whose norms and rotations are the bridge's kernels in optimum-habana (seen in 1.17).
_WITH_KERNELS: Final = frozenset({"Llama", "Mistral", "Qwen2"})


def make_model(model: Model, job: Job) -> nn.Module:
    """Return a model with random weights."""
    import transformers

    layers = model.layers
    sizes = dict(model.sizes)
    if model.kind == "Swin":
        sizes["depths"] = [2, 2, layers, 2]
    elif model.kind == "Whisper":
        sizes |= {"encoder_layers": layers, "decoder_layers": layers}
    else:
        sizes["num_hidden_layers"] = layers
    config = getattr(transformers, f"{model.kind}Config")(**sizes)
    # Under `_attention`, "sdpa" is one operator.
    config._attn_implementation = "sdpa" if job.fused_attention else "eager"  # noqa: SLF001 - as `from_pretrained` does
    suffix = _HEADS.get(model.kind, "ForCausalLM")
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, job.weights))
    try:
        made: nn.Module = getattr(transformers, model.kind + suffix)(config)
    finally:
        torch.set_default_dtype(before)
    if job.recompute:
        made.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator] # transformers'
    for module in made.modules():
        if parametrize.is_parametrized(module):
            # A weight norm of one small convolution, which cannot lose its data.
            parametrize.remove_parametrizations(module, "weight")
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
        # DDP refuses parameters without gradients, as one of masked training only.
        parameter.requires_grad_(word in name and "masked_spec_embed" not in name and parameter.requires_grad)
    return model


def make_batch(model: Model, job: Job) -> dict[str, Tensor]:
    """Return a batch on the host; its values are never read."""
    size, dtype = job.batch, getattr(torch, job.weights)
    tokens, labels = (torch.zeros(*sizes, dtype=torch.int64) for sizes in ((size, job.length), (size,)))
    text = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    if model.kind in _CAUSAL:
        return {**text, "labels": tokens}
    if model.kind == "Esm":
        return {**text, "labels": labels}
    if model.kind == "Roberta":
        return {**text, "start_positions": labels, "end_positions": labels}
    if model.kind == "Whisper":
        return {"input_features": torch.zeros(size, 80, 3000, dtype=dtype), "labels": tokens}
    inputs = {"AST": (128, 128), "Wav2Vec2": (128000,)}  # 8 seconds at 16 kHz.
    if model.kind in inputs:
        return {"input_values": torch.zeros(size, *inputs[model.kind], dtype=dtype), "labels": labels}
    return {"pixel_values": torch.zeros(size, 3, 224, 224, dtype=dtype), "labels": labels}


def program(model: Model, job: Job) -> Callable[[], None]:
    """Return a training loop as optimum-habana's Trainer runs it."""

    def train() -> None:
        from habana_frameworks.torch import core
        from habana_frameworks.torch.hpex.normalization import FusedClipNorm
        from habana_frameworks.torch.hpex.optimizers import FusedAdamW

        mark_step = core.mark_step if job.mode == "lazy" else lambda: None
        bare = make_model(model, job).to("hpu")
        trained = [each for each in bare.parameters() if each.requires_grad]
        network, optimizer = _distribute(bare, FusedAdamW(trained, lr=1e-4), job)
        clip = FusedClipNorm(trained, 1.0)

        for _ in range(_STEPS):
            with plan.step(), _softmax(job), _attention(job), _kernels(model.kind):
                for micro in range(job.accumulate):
                    batch = {name: each.to("hpu") for name, each in make_batch(model, job).items()}
                    with _no_sync(network, job, micro):
                        autocast = torch.autocast("hpu", dtype=torch.bfloat16, enabled=job.autocast)
                        with autocast, _float8(job):
                            loss = network(**batch).loss
                        if job.splits_passes:
                            mark_step()
                        with _float8(job):  # For what is recomputed.
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

    return train


def _distribute(network: nn.Module, optimizer: Any, job: Job) -> tuple[Any, Any]:
    """Return a model and its optimizer for a job: with DDP, or DeepSpeed's engine as optimum-habana configures it."""
    if not job.zero:
        if job.cards == 1:
            return network, optimizer
        torch.distributed.init_process_group("hccl")
        wrapped = nn.parallel.DistributedDataParallel(
            network, bucket_cap_mb=_BUCKET_MB, gradient_as_bucket_view=True, find_unused_parameters=False
        )
        return wrapped, optimizer
    import deepspeed

    zero = {"stage": job.zero, "overlap_comm": False, "contiguous_gradients": False, "reduce_scatter": False}
    config = {
        "train_micro_batch_size_per_gpu": job.batch, "gradient_accumulation_steps": job.accumulate,
        "bf16": {"enabled": True}, "gradient_clipping": 1.0, "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=network, optimizer=optimizer, config=config, dist_init_required=False)
    return engine, engine


def _float8(job: Job) -> contextlib.AbstractContextManager[None]:
    """Compute layers of the transformer engine in float8, if the job asks."""
    if not job.float8:
        return contextlib.nullcontext()
    from habana_frameworks.torch.hpex.experimental import transformer_engine as te

    return te.fp8_autocast(enabled=True)  # type: ignore[no-any-return] # without types


def _attention(job: Job) -> contextlib.AbstractContextManager[None]:
    """Take attention as one operator, as the bridge's FusedSDPA does, if the job asks."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.FLASH_ATTENTION) if job.fused_attention else contextlib.nullcontext()


@contextlib.contextmanager
def _kernels(kind: str) -> Iterator[None]:
    """Take norms and rotations as the bridge's kernels, as optimum-habana does in some models, and masks as given."""
    from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV2
    from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

    def normalize(self: Any, states: Tensor) -> Tensor:
        inputs = states.to(self.weight.dtype)
        normalized: Tensor = FusedRMSNorm.apply(inputs, self.weight, self.variance_epsilon)
        return normalized.to(states.dtype)

    def rotate(query: Tensor, key: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        angles = cosine.unsqueeze(1), sine.unsqueeze(1)
        return tuple(RotaryPosEmbeddingHelperV2.apply(each, *angles, None) for each in (query, key))

    masking = importlib.import_module("transformers.masking_utils")
    with contextlib.ExitStack() as stack:
        # transformers reads whether a mask is all ones from version 5 on, unless the program is traced.
        stack.enter_context(mock.patch.object(masking, "is_tracing", return_value=True))
        if kind in _WITH_KERNELS:
            module = importlib.import_module(f"transformers.models.{kind.lower()}.modeling_{kind.lower()}")
            norm = getattr(module, f"{kind}RMSNorm")
            stack.enter_context(mock.patch.object(norm, "forward", normalize))
            stack.enter_context(mock.patch.object(module, "apply_rotary_pos_emb", rotate))
        yield


def _softmax(job: Job) -> contextlib.AbstractContextManager[Any]:
    """Take every softmax in the type of its input, as optimum-habana's `attn_softmax_bf16` does, if the job asks."""
    original = nn.functional.softmax

    def softmax(inputs: Tensor, dim: int, **_: Any) -> Tensor:
        return original(inputs, dim=dim)

    return mock.patch.object(nn.functional, "softmax", softmax if job.softmax_bf16 else original)


def _no_sync(network: Any, job: Job, micro: int) -> contextlib.AbstractContextManager[Any]:
    is_reduced = not isinstance(network, nn.parallel.DistributedDataParallel) or micro == job.accumulate - 1
    return contextlib.nullcontext() if is_reduced else network.no_sync()


def record(name: str, job: Job) -> Recording:
    """Return the recording of a job, as rank 0 of its box."""
    recording = record_call(program(MODELS[name], job), Options(devices=job.cards))
    recording.lazy = job.mode == "lazy"
    recording.compiled = job.mode == "compile"
    recording.precision = "bf16-true" if job.weights == "bfloat16" else "bf16-mixed"
    return recording
