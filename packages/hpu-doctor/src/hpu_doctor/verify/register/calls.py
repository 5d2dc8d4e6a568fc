"""Functions of the bridge that the packages call, with their parameters."""

import contextlib
import functools
from collections.abc import Mapping
from typing import Any, Final

import torch

from hpu_doctor.verify.assumption import NotTriedError, Subject
from hpu_doctor.verify.register._tools import BRIDGE, LATER, attribute, existing, hpu, module, parameters_of

SUBJECT = Subject("Functions of the bridge")
assume = SUBJECT.assume

# Parameters of the functions that the packages call, by releases and mode of the bridge: those of bridge 1.19.0, from
# 1.20 on those of 2025; vllm-gaudi for `env_setting`; DeepSpeed and optimum-habana for `utils.experimental`.
FUNCTIONS: Final[dict[str, dict[str, str]]] = {
    "functions-of-all-releases": {
        "core.mark_step": "device_str sync",
        "core.is_lazy": "",
        "distributed.hccl.initialize_distributed_hpu": "world_size rank local_rank",
        "hpex.optimizers.FusedAdamW": "params lr betas eps weight_decay bias_correction moments_dtype",
        "hpu.init": "",
        "hpu.is_initialized": "",
        "hpu.is_available": "",
        "hpu.device_count": "",
        "hpu.synchronize": "",
        "hpu.set_device": "device",
        "hpu.get_rng_state": "device",
        "hpu.set_rng_state": "new_state device",
        "hpu.memory_stats": "device",
        "hpu.metric_global": "name",
        "internal.bridge_config.env_setting": "name value",
        "utils.experimental._get_device_type": "",
        "utils.experimental._is_fp16_supported": "",
    },
    "functions-of-lazy-mode": {
        "hpu.wrap_in_hpu_graph": "module asynchronous disable_tensor_cache dry_run max_graphs",
        "hpu.ModuleCacher.__init__": "max_graphs",
        "hpu.ModuleCacher.__call__": "model use_lfu inplace allow_unused_input asynchronous have_grad_accumulation "
        "log_frequency verbose disable_tensor_cache dry_run",
    },
    "functions-to-1-19": {
        "core.hpu_set_env": "model",
        "core.hpu_inference_initialize": "model mark_only_scales_as_const optimizer args",
    },
    "functions-from-1-20": {
        "core.hpu_inference_set_env": "model",
        "core.hpu_inference_initialize": "model mark_only_scales_as_const mark_scales mark_non_scales optimizer args",
    },
}
_CLAIMS: Final[dict[str, dict[str, Any]]] = {
    "functions-of-all-releases": {},
    "functions-of-lazy-mode": {"mode": "lazy"},
    "functions-to-1-19": {"releases": "<=1.19"},
    "functions-from-1-20": {"releases": ">=1.20"},
}


def _differences(functions: Mapping[str, str]) -> object:
    """Return the functions that are absent or have other parameters, with these."""
    found = {}
    for path, expected in functions.items():
        # Modules are in lower case, classes and functions follow.
        owner, names = _split(path)
        function = attribute(owner, names)
        # A compiled function does not tell its parameters.
        with contextlib.suppress(NotTriedError):
            parameters = function if function == "absent" else parameters_of(function)
            if parameters != expected.split():
                found[path] = parameters
    return found


def _split(path: str) -> tuple[str, str]:
    """Return the module and the names in it of "hpu.ModuleCacher.__init__"."""
    parts = path.split(".")
    start = next((index for index, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    return ".".join(parts[:start]), ".".join(parts[start:])


for _id, _functions in FUNCTIONS.items():
    SUBJECT.add(
        _id,
        f"{len(_functions)} functions that the packages call have the parameters of the published sources: "
        f"{', '.join(f'`{name}`' for name in _functions)}.",
        functools.partial(_differences, _functions),
        source=f"{BRIDGE if '1-20' not in _id else LATER}the modules of these names",
        expected={},
        means={
            "hpu-core": "the call in `hpu_core.bridge` would raise a TypeError or an AttributeError.",
            "hpu-deepspeed": "DeepSpeed's calls of `set_device` and its fused Adam would fail.",
        },
        **_CLAIMS[_id],
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
