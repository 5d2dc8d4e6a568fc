"""Functions of the bridge that the packages call, with their parameters."""

import functools
from typing import Any, Final

import torch

from hpu_doctor.verify.assumption import NotTriedError, Subject
from hpu_doctor.verify.register._tools import BRIDGE, LATER, attribute, existing, hpu, module, parameters_of

SUBJECT = Subject("Functions of the bridge")
assume = SUBJECT.assume

_CORE_MEANS = "the call in `hpu_core.bridge` would raise a TypeError or an AttributeError."
_WRAP = "module asynchronous disable_tensor_cache dry_run max_graphs"
_CACHE = (
    "model use_lfu inplace allow_unused_input asynchronous have_grad_accumulation log_frequency verbose "
    "disable_tensor_cache dry_run"
)
_INIT = "model mark_only_scales_as_const optimizer args"
_INIT_LATER = "model mark_only_scales_as_const mark_scales mark_non_scales optimizer args"
_QUANTIZATION = BRIDGE + "core/quantization.py"
_QUANTIZATION_LATER = LATER + "core/quantization.py"
_HCCL = BRIDGE + "distributed/hccl/__init__.py"
_VLLM = "vllm-gaudi v1/worker/hpu_model_runner.py:6231-6241"

# Module, function, its parameters, source, packages that call it, and other fields.
FUNCTIONS: Final[tuple[tuple[str, str, str, str, str, dict[str, Any]], ...]] = (
    ("core", "mark_step", "device_str sync", BRIDGE + "core/step_closure.py", "hpu-core", {}),
    ("core", "is_lazy", "", BRIDGE + "utils/internal.py:25-28", "hpu-core hpu-fsdp", {}),
    ("hpu", "init", "", BRIDGE + "hpu/__init__.py", "hpu-core", {}),
    ("hpu", "is_initialized", "", BRIDGE + "hpu/__init__.py", "hpu-core", {}),
    ("hpu", "is_available", "", BRIDGE + "hpu/__init__.py", "hpu-core", {}),
    ("hpu", "device_count", "", BRIDGE + "hpu/__init__.py", "hpu-core", {}),
    ("hpu", "synchronize", "", BRIDGE + "hpu/__init__.py", "hpu-core hpu-doctor", {}),
    ("hpu", "set_device", "device", BRIDGE + "hpu/__init__.py", "hpu-deepspeed hpu-fsdp", {}),
    ("hpu", "get_rng_state", "device", BRIDGE + "hpu/random.py:47-58", "hpu-core", {}),
    ("hpu", "set_rng_state", "new_state device", BRIDGE + "hpu/random.py", "hpu-core", {}),
    ("hpu", "memory_stats", "device", BRIDGE + "hpu/memory.py:153-180", "hpu-core hpu-profiler", {}),
    ("hpu", "metric_global", "name", BRIDGE + "hpu/metrics.py", "hpu-core hpu-bucketing", {}),
    ("hpu", "wrap_in_hpu_graph", _WRAP, BRIDGE + "hpu/graphs.py", "hpu-bucketing", {"mode": "lazy"}),
    ("hpu", "ModuleCacher.__init__", "max_graphs", BRIDGE + "hpu/graphs.py", "hpu-bucketing", {"mode": "lazy"}),
    ("hpu", "ModuleCacher.__call__", _CACHE, BRIDGE + "hpu/graphs.py", "hpu-bucketing", {"mode": "lazy"}),
    ("internal.bridge_config", "env_setting", "name value", _VLLM, "hpu-bucketing", {}),
    ("utils.experimental", "_get_device_type", "", "DeepSpeed and optimum-habana call it so", "hpu-core", {}),
    ("utils.experimental", "_is_fp16_supported", "", "DeepSpeed calls it so", "hpu-core hpu-precision", {}),
    ("distributed.hccl", "initialize_distributed_hpu", "world_size rank local_rank", _HCCL, "hpu-core hpu-ddp", {}),
    ("core", "hpu_set_env", "model", _QUANTIZATION, "hpu-precision", {"releases": "<=1.19"}),
    ("core", "hpu_inference_set_env", "model", _QUANTIZATION_LATER, "hpu-precision", {"releases": ">=1.20"}),
    ("core", "hpu_inference_initialize", _INIT, _QUANTIZATION, "hpu-precision", {"releases": "<=1.19"}),
    (
        "core",
        "hpu_inference_initialize",
        _INIT_LATER,
        _QUANTIZATION_LATER,
        "hpu-precision",
        {"releases": ">=1.20"},
    ),
)


def _parameters(owner: str, name: str) -> object:
    function = attribute(owner, name)
    return function if function == "absent" else parameters_of(function)


for _module, _name, _expected, _source, _packages, _fields in FUNCTIONS:
    _suffix = "-to-1-19" if _fields.get("releases") == "<=1.19" and _name.endswith("initialize") else ""
    _id = f"call-{_name.strip('_').replace('.__', '-').replace('__', '').replace('_', '-').lower()}{_suffix}"
    SUBJECT.add(
        _id,
        f"`{_module}.{_name}` has the parameters ({', '.join(_expected.split())}).",
        functools.partial(_parameters, _module, _name),
        source=_source,
        expected=_expected.split(),
        means=dict.fromkeys(_packages.split(), _CORE_MEANS),
        **_fields,
    )


@assume(
    source=BRIDGE + "hpu/__init__.py and hpu/memory.py",
    expected=[],
    means={
        "hpu-core": "teardown could free cached memory.",
        "hpu-deepspeed": "the names that DeepSpeed calls would exist, and our stand-ins for them would hide them.",
    },
)
def absent_memory_functions() -> object:
    """`torch.hpu` lacks functions of `torch.cuda`: `empty_cache`, `ipc_collect`, `memory_snapshot` and two resets."""
    names = ("empty_cache", "ipc_collect", "memory_snapshot", "reset_max_memory_allocated", "reset_max_memory_cached")
    return existing("hpu", names)


@assume(
    source=BRIDGE + "hpu/__init__.py, star imports; lightning-habana calls `torch_hpu.hpu.memory_stats`",
    expected=True,
    means={"hpu-compat": "programs of lightning-habana that use the name would fail."},
)
def hpu_has_itself() -> object:
    """`torch.hpu.hpu` is the module itself, and so is `core.hpu`."""
    return hpu().hpu is hpu() and module("core").hpu is hpu()


@assume(
    source=BRIDGE + "hpu/streams.py",
    expected=["enable_timing"],
    means={"hpu-fsdp": "events of FSDP2 could be created with torch.cuda's keywords."},
)
def event_takes_timing_only() -> object:
    """`Event` takes `enable_timing`, and neither `blocking` nor `interprocess`."""
    event = hpu().Event
    found = []
    for name in ("enable_timing", "blocking", "interprocess"):
        try:
            event(**{name: False})
        except TypeError:
            continue
        found.append(name)
    return found


@assume(
    source=BRIDGE + "hpu/streams.py; torch 2.7 FSDP2 calls it so",
    expected=True,
    means={"hpu-fsdp": "FSDP2 could not create its streams."},
)
def stream_takes_a_priority() -> object:
    """`Stream(priority=-1)` is a stream."""
    stream = hpu().Stream(priority=-1)
    return stream.query() in {True, False}


@assume(
    source=LATER + "hpu/random.py",
    expected=["set_rng_ctx", "unset_rng_ctx"],
    releases=">=1.20",
    means={"hpu-fsdp": "random operators on DTensors, such as dropout under tensor parallelism, would fail."},
)
def rng_contexts_exist() -> object:
    """`torch.hpu` has `set_rng_ctx` and `unset_rng_ctx`."""
    return existing("hpu", ("set_rng_ctx", "unset_rng_ctx"))


@assume(
    source=BRIDGE + "hpex/ and vllm-gaudi, optimum-habana, which import them",
    expected=["FusedSDPA", "RotaryPosEmbeddingHelperV2", "apply_rotary_pos_emb"],
    releases=">=1.19",
    means={"hpu-sim": "models that import fused kernels would run here and fail on a card."},
)
def fused_kernels_exist() -> object:
    """`hpex.kernels` has fused attention and rotary embeddings."""
    kernels = module("hpex.kernels")
    names = ("FusedSDPA", "RotaryPosEmbeddingHelperV2", "apply_rotary_pos_emb")
    return [name for name in names if hasattr(kernels, name)]


@assume(
    source="vllm-gaudi, neural-compressor and DeepSpeed call them; habana_eager/eager_custom_op_register.cpp",
    expected=["cast_to_fp8_v2", "cast_from_fp8", "fp8_gemm_v2", "rms_norm", "sdpa_recomp_fwd"],
    releases=">=1.19",
    means={
        "hpu-precision": "conversion to fp8 by neural-compressor would fail.",
        "hpu-sim": "programs that call them would run here only.",
    },
)
def operators_of_the_bridge_exist() -> object:
    """`torch.ops.hpu` has the operators that models call."""
    names = ("cast_to_fp8_v2", "cast_from_fp8", "fp8_gemm_v2", "rms_norm", "sdpa_recomp_fwd")
    return [name for name in names if hasattr(torch.ops.hpu, name)]


@assume(
    source=BRIDGE + "hpex/optimizers",
    expected=["params", "lr", "betas", "eps", "weight_decay", "bias_correction", "moments_dtype"],
    means={"hpu-deepspeed": "DeepSpeed's fused Adam for hpu would get wrong arguments."},
)
def fused_adamw_parameters() -> object:
    """`hpex.optimizers.FusedAdamW` has the parameters of the published source."""
    return parameters_of(attribute("hpex.optimizers", "FusedAdamW"))


@assume(
    source=BRIDGE + "activity_profiler/activity_profiler.py:25-27",
    expected=True,
    means={"hpu-profiler": "the option that records the bridge's own functions would fail."},
)
def debug_activity_exists() -> object:
    """`activity_profiler.DebugActivity` has BRIDGE_FUNCTION_CALLS."""
    found = module("activity_profiler")
    if not hasattr(found, "DebugActivity"):
        raise NotTriedError("this bridge has no DebugActivity")
    return hasattr(found.DebugActivity, "BRIDGE_FUNCTION_CALLS")
