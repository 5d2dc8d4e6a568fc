"""Changed behaviours of the simulated bridge, at least one for each assumption, whose program must notice it.

A mutation is applied in a process that has loaded the bridge, before the program.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

from hpu_doctor.verify import register
from hpu_doctor.verify.register import calls

Mutation = Callable[[], object]
MUTATIONS: dict[str, tuple[str, ...]] = {}
_FUNCTIONS: dict[str, Mutation] = {}


def breaks(*ids: str) -> Callable[[Mutation], Mutation]:
    """Return a decorator that adds a mutation, and the ids of assumptions that it breaks."""

    def add(function: Mutation) -> Mutation:
        name = function.__name__.replace("_", "-")
        MUTATIONS[name] = ids
        _FUNCTIONS[name] = function
        return function

    return add


def apply(name: str) -> None:
    """Apply a mutation to this process."""
    _FUNCTIONS[name]()


def module(name: str) -> Any:
    """Import a module, whose attributes may be replaced."""
    return importlib.import_module(name)


def replace(path: str, value: Any) -> Any:
    """Set "module:name.name" and return what was there."""
    name, _, names = path.partition(":")
    *owners, last = names.split(".")
    owner = functools.reduce(getattr, owners, module(name))
    before = getattr(owner, last, None)
    setattr(owner, last, value)
    return before


def returning(value: object) -> Callable[..., Any]:
    """Return a function that returns a value, whatever its arguments."""
    return lambda *_args, **_kwargs: value


def wrap(path: str, change: Callable[[Any], Any]) -> None:
    """Change what a function returns."""
    original = replace(path, None)
    replace(path, functools.wraps(original)(lambda *args, **kwargs: change(original(*args, **kwargs))))


def replaces(name: str, path: str, value: Any, *ids: str) -> None:
    """Add a mutation that is one call of `replace`, and the ids of assumptions that it breaks."""
    MUTATIONS[name] = ids
    _FUNCTIONS[name] = functools.partial(replace, path, value)


def wraps(name: str, path: str, change: Callable[[Any], Any], *ids: str) -> None:
    """Add a mutation that is one call of `wrap`, and the ids of assumptions that it breaks."""
    MUTATIONS[name] = ids
    _FUNCTIONS[name] = functools.partial(wrap, path, change)


BRIDGE = "habana_frameworks.torch"
HPU = f"{BRIDGE}.hpu:"
CORE = f"{BRIDGE}.core:"
HCCL = f"{BRIDGE}.distributed.hccl:"
AUTOCAST_CASES: set[str] = {*cast("dict[str, Any]", register.find("autocast-lists").expected)}
ATTENTION_CASES: set[str] = {*cast("dict[str, Any]", register.find("fused-attention-agrees").expected)}


def _open() -> None:
    module(f"{BRIDGE}.hpu").init()


def _change_name(name: str, expected: str) -> None:
    """Change the parameters of a name of the table, or whether it is there."""
    parent, _, last = name.rpartition(".")
    owner = calls.find(parent) if parent else module(BRIDGE)
    changed = {"there": None, "absent": object()}.get(expected, lambda changed=None: changed)
    setattr(owner, last, changed)
    if expected == "there":
        sys.modules[f"{BRIDGE}.{name}"] = None  # type: ignore[assignment] # Python refuses the import then.


# One per name of the table.
def _add_names() -> None:
    for entry, fields in calls.TABLE.items():
        for name, expected in calls.rows_of(fields["names"]).items():
            mutation = f"{name}-in-{entry}"
            MUTATIONS[mutation] = (f"{entry}/{name}",)
            _FUNCTIONS[mutation] = functools.partial(_change_name, name, expected)


_add_names()


# Loading


@breaks("import-opens-no-card", "queries-open-no-card/is_available", "calls-open-the-card/init")
def card_is_open_after_the_import() -> None:
    _open()


@breaks(
    "rank-selects-module/endpoint without a job",
    "rank-selects-module/result without a job",
    "rank-selects-module/rank 3 of 4",
    "rank-selects-module/visible modules",
    "rank-selects-module/too few visible modules",
    "rank-selects-module/Open MPI",
)
def initialize_does_nothing() -> None:
    replace(f"{HCCL}initialize_distributed_hpu", lambda world_size=None, rank=None, local_rank=None: (2, 0, 0))


@breaks("import-sets-up-torch/hccl")
def hccl_is_not_registered() -> None:
    backend = module("torch.distributed").Backend
    with contextlib.suppress(AttributeError):
        del backend.HCCL
    backend.backend_list = [name for name in backend.backend_list if name != "hccl"]


@breaks("default-mode-is-eager")
def other_mode() -> None:
    lazy = module(f"{BRIDGE}.core").is_lazy()
    replace(f"{CORE}is_lazy", returning(not lazy))


@breaks("compile-only-flag-exists")
def flags_are_other_flags() -> None:
    @contextlib.contextmanager
    def env_setting(name: str, value: object) -> Iterator[None]:
        if name == "PT_COMPILE_ONLY_MODE":
            raise KeyError(name)
        yield

    replace(f"{BRIDGE}.internal.bridge_config:env_setting", env_setting)


# Devices

wraps("current-device-is-1", f"{HPU}current_device", lambda _: 1, "calls-open-the-card/current_device")
replaces("set-device-does-nothing", f"{HPU}set_device", returning(None), "set-device-edits-the-module")
replaces(
    "synchronize-takes-a-device",
    f"{HPU}synchronize",
    returning(None),
    "functions-of-all-releases/hpu.synchronize",
)
replaces("no-bf16", f"{HPU}is_bf16_supported", returning(False), "dtypes-that-are-supported/bfloat16")


@breaks("device-count-ignores-visible-modules")
def device_count_of_visible_modules() -> None:
    replace(f"{HPU}device_count", lambda: len(os.environ.get("HABANA_VISIBLE_MODULES", "0,1").split(",")))


@breaks("forked-child-gets-no-numbers")
def fork_is_allowed() -> None:
    # What a child would see if its parent's card were usable.
    replace("hpu_doctor.verify.register.devices:in_fork", lambda function, **_: str([2.0, 2.0, 2.0]))


# Memory

replaces("other-out-of-memory-text", "hpu_core.bridge:_OUT_OF_MEMORY", ("CUDA out of memory",), "out-of-memory-text")


@breaks("memory-stats-keys")
def statistics_of_cuda() -> None:
    wrap(f"{HPU}memory_stats", lambda stats: {"allocated_bytes.all.current": stats["InUse"]})


@breaks("calls-open-the-card/memory_allocated")
def memory_is_known_without_a_card() -> None:
    replace(f"{HPU}memory_allocated", returning(7))


# Dtypes, and values


@breaks("int64-is-native-in-eager-mode")
def dtypes_are_int32() -> None:
    torch = module("torch")
    original = torch.Tensor.cpu
    torch.Tensor.cpu = lambda self: original(self).to(torch.int32) * 3


# Random numbers


@breaks("state-restores-the-stream/state")
def two_generators() -> None:
    random = module(f"{BRIDGE}.hpu.random")
    random.default_generators = random.default_generators * 2


# Operators on the CPU, and metrics


@breaks("missing-operator-runs-on-the-cpu")
def missing_operators_are_refused() -> None:
    def airy(_: Any) -> Any:
        raise RuntimeError("aten::special_airy_ai is not yet supported on HPU.")

    replace("torch.special:airy_ai", airy)


@breaks(
    "new-shape-compiles-once/graph_compilation",
    "new-shape-compiles-once/compilations",
)
def metrics_have_other_names() -> None:
    class Metric:
        def stats(self) -> list[tuple[str, int]]:
            return [("Count", 1), ("TotalNumber", 0)]

    replace(f"{HPU}metric_global", lambda name: Metric())


# Autocast


@breaks(
    *(f"autocast-lists/{name}" for name in AUTOCAST_CASES - {"add", "cat", "sum", "relu", "abs"}),
    "autocast-of-hpu/hpu and CPU",
)
def autocast_does_nothing() -> None:
    replace("torch:autocast", lambda *_args, **_kwargs: contextlib.nullcontext())


@breaks("autocast-lists/sum", "autocast-lists/relu", "autocast-lists/abs")
def all_sums_are_float32() -> None:
    for name in ("sum", "relu", "abs"):
        wrap(f"torch:Tensor.{name}", lambda result: result.float())


# Attention, and fused functions


@breaks(*(f"fused-attention-agrees/{name}" for name in ATTENTION_CASES))
def attention_returns_the_values() -> None:
    class FusedSDPA:
        @staticmethod
        def apply(query: Any, key: Any, value: Any, *_: Any) -> Any:
            return query * value.repeat_interleave(query.shape[1] // value.shape[1], 1) + key.sum()

    replace(f"{BRIDGE}.hpex.kernels:FusedSDPA", FusedSDPA)


@breaks("fused-functions-agree/FusedClipNorm")
def clipping_does_nothing() -> None:
    class FusedClipNorm:
        def __init__(self, parameters: Any, max_norm: float) -> None:
            pass

        def clip_norm(self, parameters: Any) -> float:
            return 0.0

    replace(f"{BRIDGE}.hpex.normalization:FusedClipNorm", FusedClipNorm)


# Graphs


@breaks("wrapped-module-agrees/results", "wrapped-module-agrees/shapes")
def wrapping_doubles() -> None:
    torch = module("torch")

    def wrap_in_hpu_graph(module: Any, **_: Any) -> Any:
        forward = module.forward

        def doubled(inputs: Any) -> Any:
            # A shape of its own in every call.
            doubled.calls += 1  # type: ignore[attr-defined]
            torch.ones(doubled.calls, 77, device="hpu").sum()  # type: ignore[attr-defined]
            return forward(inputs) * 2

        doubled.calls = 100  # type: ignore[attr-defined]
        module.forward = doubled
        return torch.nn.Sequential(module)

    replace(f"{HPU}wrap_in_hpu_graph", wrap_in_hpu_graph)


@breaks("cached-module-has-gradients")
def cacher_detaches() -> None:
    def cache(model: Any, **_: Any) -> Any:
        forward = model.forward
        model.forward = lambda inputs: forward(inputs) * 3
        return model

    replace(f"{HPU}ModuleCacher", lambda _: cache)


# torch.compile


@breaks(
    "compiled-module-agrees/results and gradients",
    "compiled-module-agrees/graphs for a new shape",
)
def compiling_changes_the_result() -> None:
    replace("torch:compile", lambda target, **_: lambda *args: _shifted(target(*args)))


def _shifted(value: Any) -> Any:
    return value.sum() + 1 if hasattr(value, "sum") else value + 1


# Engines


@breaks("transformer-engine-computes/is_fp8_available")
def fp8_is_unavailable() -> None:
    from hpu_core import bridge

    name = f"{bridge.transformer_engine().__name__}.fp8"
    replace(f"{name}:FP8GlobalStateManager.is_fp8_available", returning((False, "")))


# Collectives


@breaks(
    "collective-results/SUM",
    "collective-results/MAX of bool",
)
def all_reduce_does_nothing() -> None:
    replace("torch.distributed:all_reduce", returning(None))


@breaks("barrier-waits-for-all-ranks", "barrier-never-times-out")
def barriers_do_nothing() -> None:
    replace("torch.distributed:barrier", returning(None))


@breaks("pipe-decodes-what-a-reader-names")
def pipes_decode_whole_images() -> None:
    torch = module("torch")
    nodes = f"{BRIDGE.partition('.')[0]}.mediapipe.plugins.iterator_pytorch:HPUGenericPytorchIterator.__next__"
    wrap(nodes, lambda batch: [torch.zeros_like(batch[0]), batch[1]])


# Settings that only a process of its own reads.
FRESH = {
    "list-replaces-the-default": {"PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "/no-such-file"},
}
