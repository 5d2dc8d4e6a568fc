"""Idioms of CUDA by their names, and what to write instead."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to write instead of a name.

    Attributes:
        hint: One sentence.
        call: Expression that replaces a call without arguments; None if none does in all programs.
        name: Name that replaces the name, with the same arguments.
        needs: Module that the replacement uses.
    """

    hint: str
    call: str | None = None
    name: str | None = None
    needs: str = "torch"


_SAME: Final = "torch.hpu has the same function"
_NO_NEED: Final = "leave it out: torch.hpu has no such function, and the bridge needs none"

# Functions of torch.cuda that torch.hpu has under the same name, with the same arguments but for devices.
_SAME_NAMES: Final = (
    "current_stream",
    "default_stream",
    "get_rng_state_all",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "seed_all",
    "set_rng_state_all",
    "synchronize",
)

AUTOCAST: Final = 'torch.autocast("hpu", dtype=torch.bfloat16)'
SCALER: Final = 'torch.amp.GradScaler("hpu", enabled=False)'
_AUTOCAST: Final = Rule(
    hint="autocast on hpu is bfloat16 by default; with a Trainer, `precision='bf16-mixed'` does it", call=AUTOCAST
)
_SCALER: Final = Rule(
    hint="bfloat16 needs no scaler; with a Trainer, `precision='bf16-mixed'` does without one", call=SCALER
)
_GRAPHS: Final = Rule(hint="HPU graphs, in lazy mode: hpu-bucketing's `HPUGraphs` callback")
_DATA_PARALLEL: Final = Rule(hint="Gaudi has one process per card: `Trainer(accelerator='hpu', devices=8)`")

NAMES: Final[dict[str, Rule]] = {
    **{
        f"torch.cuda.{name}": Rule(hint=_SAME, call=f"torch.hpu.{name}()", name=f"torch.hpu.{name}")
        for name in _SAME_NAMES
    },
    "torch.cuda.is_available": Rule(
        hint="ask for a Gaudi card", call="hpu_core.is_available()", name="hpu_core.is_available", needs="hpu_core"
    ),
    "torch.cuda.device_count": Rule(
        hint="count Gaudi cards, without opening one",
        call="hpu_core.device_count()",
        name="hpu_core.device_count",
        needs="hpu_core",
    ),
    "torch.cuda.get_device_name": Rule(
        hint="the generation, without opening a card", call="hpu_core.device_name()", needs="hpu_core"
    ),
    "torch.cuda.is_bf16_supported": Rule(hint="all generations support bfloat16", call="True", needs=""),
    "torch.cuda.empty_cache": Rule(hint=_NO_NEED, call="None", needs=""),
    "torch.cuda.ipc_collect": Rule(hint=_NO_NEED, call="None", needs=""),
    "torch.cuda.set_device": Rule(
        hint="leave it out: a process has one card, which its local rank selects before it is opened"
    ),
    "torch.cuda.current_device": Rule(hint="a process has one card, `torch.device('hpu')`, without an index"),
    "torch.cuda.get_device_capability": Rule(
        hint="ask for the generation: `hpu_core.device_name()`; torch.hpu's capability is the driver's version"
    ),
    "torch.cuda.get_device_properties": Rule(
        hint="torch.hpu's properties are a text; memory is `torch.hpu.memory_stats()['Limit']`"
    ),
    "torch.cuda.Event": Rule(hint="`torch.hpu.Event(enable_timing=True)`, which takes no other argument"),
    "torch.cuda.Stream": Rule(hint="`torch.hpu.Stream()`; in lazy mode everything runs in one graph"),
    "torch.cuda.stream": Rule(hint="`torch.hpu.stream(s)`"),
    "torch.cuda.CUDAGraph": _GRAPHS,
    "torch.cuda.graph": _GRAPHS,
    "torch.cuda.make_graphed_callables": _GRAPHS,
    "torch.cuda.nvtx": Rule(hint="`torch.profiler.record_function`, with `Trainer(profiler='hpu')`"),
    "torch.cuda.profiler": Rule(hint="`Trainer(profiler='hpu')` of hpu-profiler"),
    "torch.cuda.amp.autocast": _AUTOCAST,
    "torch.cuda.amp.GradScaler": _SCALER,
    "torch.cuda.amp.custom_fwd": Rule(hint="`torch.amp.custom_fwd(device_type='hpu')` (torch 2.4)"),
    "torch.cuda.amp.custom_bwd": Rule(hint="`torch.amp.custom_bwd(device_type='hpu')` (torch 2.4)"),
    "torch.cuda": Rule(hint="torch has no CUDA on Gaudi: look for the name in torch.hpu"),
    "torch.backends.cudnn": Rule(hint="leave it out: it has no effect without CUDA"),
    "torch.backends.cuda": Rule(hint="leave it out: it has no effect without CUDA"),
    "torch.nn.DataParallel": _DATA_PARALLEL,
    "torch.nn.parallel.DataParallel": _DATA_PARALLEL,
    "torch.utils.cpp_extension.CUDAExtension": Rule(
        hint="CUDA kernels need a port by hand: to operators of torch, or a TPC kernel of Intel's"
    ),
    "torch.distributed.ReduceOp.AVG": Rule(hint="`ReduceOp.SUM`, and divide by the world size: HCCL has no average"),
    "torch.nn.SyncBatchNorm": Rule(
        hint="SyncBatchNorm takes hpu tensors from torch 2.10 on; before, `torch.nn.GroupNorm`"
    ),
    "torch.distributed.is_nccl_available": Rule(hint="the backend is hccl; `torch.distributed.is_initialized()`"),
}
"""Rules by the full name of a function or module; a prefix stands for all names below it."""

MODULES: Final[dict[str, str]] = {
    "apex": "optimizers: torch's, with the callback `hpu_kernels.HPUKernels`, or `FusedLamb` of "
    "`habana_frameworks.torch.hpex.optimizers`; amp: "
    "`Trainer(precision='bf16-mixed')`; FusedLayerNorm: `torch.nn.LayerNorm`; parallel: `strategy='hpu_ddp'`",
    "pynvml": "`pyhlml`, Intel's library, or Lightning's DeviceStatsMonitor, which works on hpu",
    "nvidia_smi": "`hl-smi`, or `pyhlml`",
    "bitsandbytes": "`torch.optim.AdamW`, or ZeRO with offload; its kernels are for CUDA",
    "flash_attn": "torch's scaled_dot_product_attention, with the callback `hpu_kernels.HPUKernels`",
    "liger_kernel": "the callback `hpu_kernels.HPUKernels`",
    "xformers": "torch's scaled_dot_product_attention, with the callback `hpu_kernels.HPUKernels`",
    "triton": "kernels of Triton need a port by hand",
    "cupy": "NumPy, or torch on hpu",
    "nvidia.dali": "hpu-data, or a DataLoader with workers",
    "numba.cuda": "operators of torch",
}
"""What to use instead of modules that need CUDA."""

VARIABLES: Final[dict[str, str]] = {
    "CUDA_VISIBLE_DEVICES": "`HABANA_VISIBLE_MODULES`, which lists module ids",
    "CUDA_LAUNCH_BLOCKING": "`PT_ENABLE_HABANA_STREAMASYNC=0`",
    "NCCL_DEBUG": "`HCCL_SOCKET_IFNAME` and the logs in HABANA_LOGS are HCCL's",
    "NCCL_SOCKET_IFNAME": "`HCCL_SOCKET_IFNAME`",
    "PYTORCH_CUDA_ALLOC_CONF": "leave it out: the bridge has an allocator of its own",
}
"""What to use instead of environment variables."""
