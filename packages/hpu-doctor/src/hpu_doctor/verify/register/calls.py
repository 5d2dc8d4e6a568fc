"""Names of the bridge that the packages use: one table, and one program that looks for each."""

import contextlib
import functools
import importlib
import re
from typing import Any, Final, NamedTuple

from hpu_core import bridge
from hpu_doctor.verify.assumption import NotTriedError, Subject
from hpu_doctor.verify.register._tools import BRIDGE, LATER, parameters_of

SUBJECT = Subject("Names of the bridge")

_ROW: Final = re.compile(r"(!?)([\w.]+)(\(([^)]*)\))?")
_VLLM: Final = "vllm-gaudi, optimum-habana, neural-compressor and DeepSpeed, which use them"


class Names(NamedTuple):
    """Rows of the table that are claimed together.

    Attributes:
        rows: A name in each: "name(parameters)" is a function with these parameters, "name" exists, and "!name" does
            not. Names are those below `habana_frameworks.torch`, except for `mediapipe.` and `torch.`.
        source: Where they stand.
        means: What a difference means for each package.
        claim: Fields of `Assumption`.
    """

    rows: str
    source: str
    means: dict[str, str]
    claim: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it.


TABLE: Final[dict[str, Names]] = {
    "functions-of-all-releases": Names(
        """
        core.mark_step(device_str sync)
        core.is_lazy()
        core.hpu
        distributed.hccl.initialize_distributed_hpu(world_size rank local_rank)
        hpex.optimizers.FusedAdamW(params lr betas eps weight_decay bias_correction moments_dtype)
        hpu.init()
        hpu.is_initialized()
        hpu._initialized
        hpu.is_available()
        hpu.device_count()
        hpu.synchronize()
        hpu.set_device(device)
        hpu.get_rng_state(device)
        hpu.set_rng_state(new_state device)
        hpu.memory_stats(device)
        hpu.metric_global(name)
        hpu.hpu
        internal.bridge_config.env_setting(name value)
        utils.experimental._get_device_type()
        utils.experimental._is_fp16_supported()
        utils.experimental.synDeviceType.synDeviceGaudi
        utils.experimental.synDeviceType.synDeviceGaudi2
        utils.experimental.synDeviceType.synDeviceGaudi3
        """,
        f"{BRIDGE}the modules of these names; {_VLLM}",
        {
            "hpu-core": "the call in `hpu_core.bridge` would raise a TypeError or an AttributeError.",
            "hpu-deepspeed": "DeepSpeed's calls of `set_device` and its fused Adam would fail.",
            "hpu-compat": "programs of lightning-habana that call `torch_hpu.hpu.memory_stats` would fail.",
        },
    ),
    "absent-memory-functions": Names(
        """
        !hpu.empty_cache
        !hpu.ipc_collect
        !hpu.memory_snapshot
        !hpu.reset_max_memory_allocated
        !hpu.reset_max_memory_cached
        """,
        f"{BRIDGE}hpu/__init__.py and hpu/memory.py",
        {
            "hpu-core": "teardown could free cached memory.",
            "hpu-deepspeed": "the names that DeepSpeed calls would exist, and our stand-ins for them would hide them.",
        },
    ),
    "functions-of-lazy-mode": Names(
        """
        hpu.wrap_in_hpu_graph(module asynchronous disable_tensor_cache dry_run max_graphs)
        hpu.ModuleCacher.__init__(max_graphs)
        hpu.ModuleCacher.__call__(model use_lfu inplace allow_unused_input asynchronous have_grad_accumulation
            log_frequency verbose disable_tensor_cache dry_run)
        """,
        f"{BRIDGE}hpu/graphs.py",
        {"hpu-bucketing": "HPU graphs could not be made with its arguments."},
        {"mode": "lazy"},
    ),
    "functions-of-eager-mode": Names(
        """
        dynamo.compile_backend.config.keep_input_mutations
        dynamo.compile_backend.config.use_eager_fallback
        """,
        f"{BRIDGE}dynamo/compile_backend/config.py",
        {"hpu-compile": "options of the bridge's compiler would have other names."},
        # Importing torch's compiler takes seconds.
        {"mode": "eager", "quick": False, "seconds": 180},
    ),
    "functions-to-1-12": Names(
        "hpex.hmp",
        "optimum-habana 1.8 imports it on 1.12; lightning-habana 1.0 on 1.10",
        {"hpu-precision": "its HMP path would fail on the releases that need it."},
        {"releases": "<1.13"},
    ),
    "functions-from-1-13": Names(
        "!hpex.hmp",
        f"{BRIDGE}hpex/ has no hmp; Model-References 1.13 has no user of it",
        {"hpu-precision": "`precision='hmp'` is refused where it would work."},
        {"releases": ">=1.13"},
    ),
    "functions-to-1-19": Names(
        """
        !__version__
        core.hpu_set_env(model)
        core.hpu_inference_initialize(model mark_only_scales_as_const optimizer args)
        """,
        f"{BRIDGE}__init__.py and core/quantization.py",
        {
            "hpu-core": "`plugin_version` could ask the module first.",
            "hpu-precision": "inference in fp8 would fail.",
        },
        {"releases": "<=1.19"},
    ),
    "functions-from-1-19": Names(
        """
        hpex.kernels.FusedSDPA
        hpex.kernels.RotaryPosEmbeddingHelperV2
        hpex.kernels.apply_rotary_pos_emb
        torch.ops.hpu.cast_to_fp8_v2
        torch.ops.hpu.cast_from_fp8
        torch.ops.hpu.fp8_gemm_v2
        torch.ops.hpu.rms_norm
        torch.ops.hpu.sdpa_recomp_fwd
        """,
        f"{BRIDGE}hpex/ and habana_eager/eager_custom_op_register.cpp; {_VLLM}",
        {
            "hpu-precision": "conversion to fp8 by neural-compressor would fail.",
            "hpu-sim": "programs that use them would run here and fail on a card.",
        },
        {"releases": ">=1.19"},
    ),
    "functions-from-1-20": Names(
        """
        __version__
        core.hpu_inference_set_env(model)
        core.hpu_inference_initialize(model mark_only_scales_as_const mark_scales mark_non_scales optimizer args)
        hpu.set_rng_ctx
        hpu.unset_rng_ctx
        !hpex.optimizers.Adam
        """,
        f"{LATER}version.py, core/quantization.py, hpu/random.py and hpex/optimizers",
        {
            "hpu-core": "a bridge that was not installed as a distribution would have no known version.",
            "hpu-precision": "inference in fp8 would have to use the older name.",
            "hpu-fsdp": "random operators on DTensors, such as dropout under tensor parallelism, would fail.",
            "hpu-compat": "programs that import `Adam` keep working, and the error that we raise is wrong.",
        },
        {"releases": ">=1.20"},
    ),
    "functions-of-the-media-loader": Names(
        """
        mediapipe.mediapipe.MediaPipe.__init__(device prefetch_depth batch_size num_threads pipe_name)
        mediapipe.mediapipe.MediaPipe.definegraph()
        mediapipe.mediapipe.MediaPipe.del_iter()
        mediapipe.fn.MediaExtReaderOp
        mediapipe.fn.ImageDecoder
        mediapipe.media_types.imgtype.RGB_P
        mediapipe.media_types.ftype.BI_LINEAR
        mediapipe.media_types.ftype.BICUBIC
        mediapipe.media_types.ftype.LANCZOS
        mediapipe.media_types.ftype.NEAREST
        mediapipe.media_types.ftype.BOX
        mediapipe.media_types.dtype.NDT
        mediapipe.media_types.dtype.FLOAT32
        mediapipe.media_types.dtype.INT32
        mediapipe.media_types.readerOutType.FILE_LIST
        mediapipe.operators.reader_nodes.reader_nodes.media_ext_reader_op_impl
        mediapipe.operators.reader_nodes.reader_nodes.media_ext_reader_op_tensor_info
        mediapipe.plugins.iterator_pytorch.HPUGenericPytorchIterator(mediapipe)
        """,
        "Intel's page of the media loader; optimum-habana's example for CLIP (clip_media_pipe.py)",
        {"hpu-data": "images would be decoded on the host, as the pipe of the card could not be built."},
        {"generations": ("GAUDI2", "GAUDI3")},
    ),
}


def rows_of(table: str) -> dict[str, str]:
    """Return what is expected of each name: its parameters in parentheses, "there" or "absent"."""
    return {
        name: f"({' '.join(parameters.split())})" if parenthesis else ("absent" if is_absent else "there")
        for is_absent, name, parenthesis, parameters in _ROW.findall(table)
    }


def _see(rows: dict[str, str]) -> object:
    """Return what this bridge has of each name, with the parameters where they are expected."""
    seen = {}
    for name, expected in rows.items():
        found = find(name)
        seen[name] = "absent" if found is None else "there"
        if found is not None and expected.startswith("("):
            # A compiled function does not tell its parameters.
            seen[name] = expected
            with contextlib.suppress(NotTriedError):
                seen[name] = f"({' '.join(parameters_of(found))})"
    return seen


def find(name: str) -> Any:
    """Return what the bridge has under a name of the table, None for nothing.

    Raises:
        NotTriedError: There is no media loader.
    """
    if name.startswith("mediapipe."):
        try:
            bridge.load_media("mediapipe")
        except ImportError as error:
            raise NotTriedError(f"the media loader is not installed: {error}") from error
    root = "" if name.startswith("torch.") else "habana_frameworks." + "torch." * (not name.startswith("mediapipe."))
    parts = (root + name).split(".")
    bridge.load()
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found
    return None


for _id, _names in TABLE.items():
    _rows = rows_of(_names.rows)
    SUBJECT.add(
        _id,
        f"{len(_rows)} names that the packages use are there, or are not: {', '.join(f'`{name}`' for name in _rows)}.",
        functools.partial(_see, _rows),
        source=_names.source,
        means=_names.means,
        expected=_rows,
        **_names.claim,
    )
