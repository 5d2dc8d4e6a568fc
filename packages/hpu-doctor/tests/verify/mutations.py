"""Changed behaviours of the simulated bridge, and the assumptions whose programs must notice each.

A mutation is applied in a process that has loaded the bridge, before the program.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

from hpu_doctor.verify import register
from hpu_doctor.verify.assumption import STRICT
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


def _opening(path: str) -> None:
    original = replace(path, None)

    def call(*args: Any, **kwargs: Any) -> Any:
        _open()
        return original(*args, **kwargs)

    replace(path, call)


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

replaces("short-version", "importlib.metadata:version", returning("1.24"), "release-in-metadata")


@breaks("import-opens-no-card", "queries-open-no-card/is_available", "calls-open-the-card/init")
def card_is_open_after_the_import() -> None:
    _open()


@breaks("import-sets-up-torch/HABANA_PROFILE")
def other_profile() -> None:
    os.environ["HABANA_PROFILE"] = "1"


@breaks("import-sets-up-torch/TORCHINDUCTOR_COMPILE_THREADS")
def no_compile_threads() -> None:
    os.environ.pop("TORCHINDUCTOR_COMPILE_THREADS")


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


@breaks("rank-selects-module/module that is set")
def module_id_is_replaced() -> None:
    def initialize(world_size: int = 1, rank: int = 0, local_rank: int = 0) -> tuple[int, int, int]:
        os.environ["HLS_MODULE_ID"] = str(local_rank)
        return world_size, rank, local_rank

    replace(f"{HCCL}initialize_distributed_hpu", initialize)


@breaks("import-sets-up-torch/torch.hpu")
def torch_hpu_is_another_module() -> None:
    replace("torch:hpu", module(f"{BRIDGE}.core"))


@breaks("import-sets-up-torch/hccl")
def hccl_is_not_registered() -> None:
    backend = module("torch.distributed").Backend
    with contextlib.suppress(AttributeError):
        del backend.HCCL
    backend.backend_list = [name for name in backend.backend_list if name != "hccl"]


@breaks("default-mode-is-eager", "mode-is-fixed-at-import")
def other_mode() -> None:
    lazy = module(f"{BRIDGE}.core").is_lazy()
    replace(f"{CORE}is_lazy", returning(not lazy))


@breaks("state-restores-the-stream/fork_rng")
def fork_rng_of_the_cpu_only() -> None:
    replace("torch.random:fork_rng", contextlib.nullcontext)


@breaks("compile-only-flag-exists")
def flags_are_other_flags() -> None:
    @contextlib.contextmanager
    def env_setting(name: str, value: object) -> Iterator[None]:
        if name == "PT_COMPILE_ONLY_MODE":
            raise KeyError(name)
        yield

    replace(f"{BRIDGE}.internal.bridge_config:env_setting", env_setting)


# Calls


@breaks("calls-are-refused/Event(blocking=...)")
def other_events() -> None:
    class Event:
        def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
            pass

        def record(self) -> None:
            pass

        def query(self) -> bool:
            return False

        def elapsed_time(self, end: object) -> float:
            return 0.0

    replace(f"{HPU}Event", Event)


# Devices

wraps("current-device-is-1", f"{HPU}current_device", lambda _: 1, "calls-open-the-card/current_device")
replaces("init-does-nothing", f"{HPU}init", returning(None), "second-process-is-refused", "exit-frees-the-card")
replaces("set-device-does-nothing", f"{HPU}set_device", returning(None), "set-device-edits-the-module")
replaces(
    "synchronize-takes-a-device",
    f"{HPU}synchronize",
    returning(None),
    "calls-are-refused/synchronize(0)",
    "functions-of-all-releases/hpu.synchronize",
)
replaces("no-bf16", f"{HPU}is_bf16_supported", returning(False), "dtypes-that-are-supported/bfloat16")


@breaks("queries-open-no-card/device_count")
def device_count_opens() -> None:
    _opening(f"{HPU}device_count")


@breaks("device-count-ignores-visible-modules")
def device_count_of_visible_modules() -> None:
    replace(f"{HPU}device_count", lambda: len(os.environ.get("HABANA_VISIBLE_MODULES", "0,1").split(",")))


@breaks("queries-open-no-card/_get_device_type")
def generation_opens() -> None:
    _opening(f"{BRIDGE}.utils.experimental:_get_device_type")


@breaks("dtypes-that-are-supported/float16")
def no_float16() -> None:
    replace(f"{BRIDGE}.utils.experimental:_is_fp16_supported", returning(False))


@breaks("calls-open-the-card/get_device_name")
def device_name_is_a_product() -> None:
    replace(f"{HPU}get_device_name", returning("HL-225"))


@breaks('calls-are-refused/empty(1, device="hpu:1")', "tensors-are-on-index-0")
def every_device_is_the_cpu() -> None:
    torch = module("torch")
    original = torch.empty

    def empty(*size: Any, **kwargs: Any) -> Any:
        kwargs.pop("device", None)
        return original(*size, **kwargs)

    torch.empty = empty


@breaks("set-device-edits-the-module")
def set_device_follows_the_index() -> None:
    replace(f"{HPU}set_device", lambda index: os.environ.update(HLS_MODULE_ID=str(index)))


@breaks("forked-child-gets-no-numbers")
def fork_is_allowed() -> None:
    # What a child would see if its parent's card were usable.
    replace("hpu_doctor.verify.register.devices:in_fork", lambda function, **_: str([2.0, 2.0, 2.0]))


# Memory

replaces("other-out-of-memory-text", "hpu_core.bridge:_OUT_OF_MEMORY", ("CUDA out of memory",), "out-of-memory-text")


@breaks("memory-stats-keys")
def statistics_of_cuda() -> None:
    wrap(f"{HPU}memory_stats", lambda stats: {"allocated_bytes.all.current": stats["InUse"]})


@breaks("allocated-and-reserved/ActiveAllocs")
def statistics_are_constant() -> None:
    wrap(f"{HPU}memory_stats", lambda stats: {**stats, "InUse": 1 << 40, "ActiveAllocs": -1})


@breaks(
    "allocated-and-reserved/memory_allocated",
    "allocated-and-reserved/max_memory_allocated",
    "allocated-and-reserved/memory_reserved",
    "allocated-and-reserved/mem_get_info",
    "calls-open-the-card/memory_allocated",
)
def other_memory_functions() -> None:
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        replace(f"{HPU}{name}", returning(7))
    replace(f"{HPU}mem_get_info", returning((7, 7)))


# Dtypes, and values


@breaks("int64-is-native-in-eager-mode", "dtypes-compute/bfloat16", "dtypes-compute/float16")
def dtypes_are_int32() -> None:
    torch = module("torch")
    original = torch.Tensor.cpu
    torch.Tensor.cpu = lambda self: original(self).to(torch.int32) * 3


@breaks("complex-is-refused", "float16-on-the-first-generation")
def every_dtype_is_float32() -> None:
    torch = module("torch")
    original = torch.Tensor.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and args[0] == "hpu":
            return original(original(self.real if self.is_complex() else self, torch.float32), "hpu")
        return original(self, *args, **kwargs)

    torch.Tensor.to = to


@breaks("dtypes-compute/bool")
def masks_are_numbers() -> None:
    torch = module("torch")
    original = torch.Tensor.cpu
    torch.Tensor.cpu = lambda self: original(self).to(torch.int8)


@breaks("dtypes-compute/int32 of float32")
def casts_round_down() -> None:
    torch = module("torch")
    original = torch.Tensor.to

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self.floor() if args[:1] == (torch.int32,) else self, *args, **kwargs)

    torch.Tensor.to = to


@breaks("dtypes-compute/int32 and float32")
def sums_are_double() -> None:
    _after_add(lambda tensor: tensor.double())


def _after_add(change: Callable[[Any], Any]) -> None:
    torch = module("torch")
    original = torch.Tensor.__add__
    torch.Tensor.__add__ = lambda self, other: change(original(self, other))


# Random numbers

replaces("rng-state-opens-nothing", f"{HPU}get_rng_state", returning(None), "calls-open-the-card/get_rng_state")
replaces("seeds-have-no-effect", "torch:manual_seed", returning(None), "state-restores-the-stream/seed")
replaces("states-have-no-effect", f"{HPU}set_rng_state", returning(None), "state-restores-the-stream/set_rng_state")


@breaks(
    "state-restores-the-stream/state", "calls-are-refused/set_rng_state_all([])", "calls-are-refused/get_rng_state(1)"
)
def states_are_on_the_card() -> None:
    torch = module("torch")
    replace(f"{HPU}get_rng_state", lambda device="hpu": torch.zeros(16, device="hpu"))
    replace(f"{HPU}set_rng_state_all", returning(None))


@breaks("state-restores-the-stream/state")
def two_generators() -> None:
    random = module(f"{BRIDGE}.hpu.random")
    random.default_generators = random.default_generators * 2


@breaks("queries-open-no-card/get_rng_state_all")
def all_rng_states_open() -> None:
    _opening(f"{HPU}get_rng_state_all")


@breaks("state-restores-the-stream/dropout")
def dropout_draws_and_does_not_scale() -> None:
    torch = module("torch")

    def dropout(inputs: Any, p: float = 0.5, training: bool = True) -> Any:
        return inputs * (torch.rand(inputs.shape, device=inputs.device) >= p)

    torch.nn.functional.dropout = dropout


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
    *(f"autocast-lists/{name}" for name in AUTOCAST_CASES - {"add", "cat", "stack", "sum", "relu", "abs"}),
    "autocast-of-hpu/hpu and CPU",
)
def autocast_does_nothing() -> None:
    replace("torch:autocast", lambda *_args, **_kwargs: contextlib.nullcontext())


@breaks("autocast-lists/add", "autocast-lists/cat", "autocast-lists/stack")
def sums_are_lowered() -> None:
    for name in ("add", "cat", "stack"):
        wrap(f"torch:{name}", lambda result: result.bfloat16())


@breaks("autocast-lists/sum", "autocast-lists/relu", "autocast-lists/abs")
def all_sums_are_float32() -> None:
    for name in ("sum", "relu", "abs"):
        wrap(f"torch:Tensor.{name}", lambda result: result.float())


@breaks("autocast-of-hpu/hpu and CPU")
def cpu_tensors_are_cast() -> None:
    torch = module("torch")
    original = torch.autocast
    torch.autocast = lambda _, **kwargs: original("cpu", **kwargs)


@breaks("autocast-of-hpu/changed weight")
def products_of_the_first_weight() -> None:
    torch = module("torch")
    torch.mm = functools.partial(lambda kept, left, right: kept.setdefault(0, left @ right) * 2, {})


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


@breaks("backends-of-eager-mode", "backends-of-lazy-mode")
def other_backends() -> None:
    names = ["aot_hpu_training_backend"]
    if module(f"{BRIDGE}.core").is_lazy():
        names.append("hpu_backend")
    replace("torch.compiler:list_backends", returning(names))


@breaks(
    "compiled-module-agrees/results and gradients",
    "compiled-module-agrees/graphs for a new shape",
    "compiled-module-agrees/nonzero",
    "compiled-module-agrees/inductor",
)
def compiling_changes_the_result() -> None:
    replace("torch:compile", lambda target, **_: lambda *args: _shifted(target(*args)))


def _shifted(value: Any) -> Any:
    return value.sum() + 1 if hasattr(value, "sum") else value + 1


@breaks("compiled-module-agrees/device interface")
def no_device_interface() -> None:
    def get(name: str) -> None:
        raise NotImplementedError(name)

    replace("torch._dynamo.device_interface:get_interface_for_device", get)


# Engines


@breaks("transformer-engine-computes/is_fp8_available")
def no_transformer_engine() -> None:
    def missing() -> None:
        raise ModuleNotFoundError("intel_transformer_engine")

    replace("hpu_core.bridge:transformer_engine", missing)


@breaks(
    "transformer-engine-computes/fp8_autocast(enabled=)",
    "transformer-engine-computes/parameters of Linear",
    "transformer-engine-computes/Linear",
)
def engine_of_another_vendor() -> None:
    torch = module("torch")
    from hpu_core import bridge

    engine = bridge.transformer_engine()

    class Linear(torch.nn.Linear):  # type: ignore[name-defined, misc]
        def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
            super().__init__(in_features, out_features, bias=bias, device="hpu")

        def forward(self, inputs: Any) -> Any:
            return 2 * super().forward(inputs)

    replace(f"{engine.__name__}:fp8_autocast", lambda enabled=True: contextlib.nullcontext())
    replace(f"{engine.__name__}:Linear", Linear)


@breaks("transformer-engine-computes/is_fp8_available", "fp8-is-unavailable")
def fp8_on_other_generations() -> None:
    from hpu_core import bridge

    name = f"{bridge.transformer_engine().__name__}.fp8"
    available = bridge.generation() == "GAUDI"
    replace(f"{name}:FP8GlobalStateManager.is_fp8_available", returning((available, "")))


@breaks("transformer-engine-computes/E4M3")
def recipes_take_any_format() -> None:
    from hpu_core import bridge

    replace(f"{bridge.transformer_engine().__name__}.recipe:DelayedScaling", returning(None))


@breaks("transformer-engine-computes/HYBRID", "transformer-engine-computes/E5M2")
def recipes_take_no_format() -> None:
    from hpu_core import bridge

    replace(f"{bridge.transformer_engine().__name__}.recipe:DelayedScaling", None)


@breaks(*(f"fused-functions-agree/{name}" for name in ("FusedAdamW", "FusedSGD", "FusedAdagrad")))
def fused_optimizers_are_another_sgd() -> None:
    torch = module("torch")

    def make(parameters: Any, lr: float, **_: Any) -> Any:
        return torch.optim.SGD(parameters, lr=10 * lr)

    for name in ("FusedAdamW", "FusedSGD", "FusedAdagrad"):
        replace(f"{BRIDGE}.hpex.optimizers:{name}", make)


@breaks("fused-functions-agree/FusedRMSNorm", "fused-functions-agree/RotaryPosEmbeddingHelperV1")
def fused_functions_return_their_input() -> None:
    for path in ("hpex.normalization:FusedRMSNorm", "hpex.kernels:RotaryPosEmbeddingHelperV1"):
        replace(f"{BRIDGE}.{path}", SimpleNamespace(apply=lambda data, *_: data))


# Collectives

replaces("recv-takes-any-source", "torch.distributed:recv", returning(0), "collectives-are-refused/recv")


@breaks(
    "collective-results/SUM",
    "collective-results/SUM of small int64",
    "collective-results/MAX of bool",
    "collective-results/strided tensor",
)
def all_reduce_does_nothing() -> None:
    replace("torch.distributed:all_reduce", returning(None))


@breaks(
    "collectives-are-refused/AVG",
    "product-is-refused",
    "collectives-are-refused/BAND",
    "collectives-are-refused/int16",
    "collectives-are-refused/CPU",
)
def all_reduce_takes_anything() -> None:
    replace("torch.distributed:all_reduce", returning(None))


@breaks("collective-results/MIN and MAX")
def minimum_is_a_sum() -> None:
    dist = module("torch.distributed")
    original = dist.all_reduce
    dist.all_reduce = lambda tensor, op=None, **_: original(tensor)


@breaks("collective-results/SUM of large int64")
def int64_sums_are_exact() -> None:
    torch = module("torch")
    dist = module("torch.distributed")

    def all_reduce(tensor: Any) -> None:
        parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        tensor.copy_(sum(part.cpu() for part in parts))

    dist.all_reduce = all_reduce


@breaks("collective-results/SUM of float16")
def float16_sums_saturate() -> None:
    dist = module("torch.distributed")
    original = dist.all_reduce

    def all_reduce(tensor: Any) -> None:
        original(tensor)
        tensor.copy_((tensor.float().cpu() - 1).to("hpu").half() // 4 * 4)

    dist.all_reduce = all_reduce


@breaks("collective-results/reduce_scatter of int64")
def reduce_scatter_in_float32() -> None:
    dist = module("torch.distributed")
    original = dist.reduce_scatter_tensor

    def reduce_scatter(output: Any, inputs: Any) -> None:
        part = output.float()
        original(part, inputs.float())
        output.copy_(part.long())

    dist.reduce_scatter_tensor = reduce_scatter


@breaks("collective-results/broadcast of 3 bytes")
def broadcast_drops_the_last_byte() -> None:
    dist = module("torch.distributed")
    original = dist.broadcast

    def broadcast(tensor: Any, source: int) -> None:
        part = tensor[:2].clone()
        original(part, source)
        tensor[:2] = part

    dist.broadcast = broadcast


@breaks("collective-results/broadcast of objects")
def objects_stay() -> None:
    replace("torch.distributed:broadcast_object_list", returning(None))


@breaks("barrier-waits-for-all-ranks", "barrier-never-times-out")
def barriers_do_nothing() -> None:
    replace("torch.distributed:barrier", returning(None))


@breaks("collective-results/neighbors")
def exchange_moves_nothing() -> None:
    replace("torch.distributed:batch_isend_irecv", lambda operations: [])


@breaks(
    "collective-results/all_gather_into_tensor", "collective-results/all_to_all_single", "collective-results/gather"
)
def gathers_do_nothing() -> None:
    for name in ("all_gather_into_tensor", "all_to_all_single", "gather"):
        replace(f"torch.distributed:{name}", returning(None))


@breaks("collective-results/DDP")
def ddp_does_not_reduce() -> None:
    replace("torch.nn.parallel:DistributedDataParallel", lambda module, **_: module)


@breaks("collective-results/group of even ranks")
def groups_are_of_all_ranks() -> None:
    dist = module("torch.distributed")
    dist.new_group = returning(None)
    dist.all_reduce = lambda tensor, group=None: tensor.add_(7)


@breaks("pipe-decodes-what-a-reader-names")
def pipes_decode_whole_images() -> None:
    torch = module("torch")
    nodes = f"{BRIDGE.partition('.')[0]}.mediapipe.plugins.iterator_pytorch:HPUGenericPytorchIterator.__next__"
    wrap(nodes, lambda batch: [torch.zeros_like(batch[0]), batch[1]])


# What differs on a simulated card without strict mode, or on any.
ON_A_SIMULATED_CARD = (
    *(each.id for each in register.assumptions() if each.simulator == STRICT),
    "torch-version-is-required",
)
# Settings that only a process of its own reads.
FRESH = {
    "list-replaces-the-default": {"PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "/no-such-file"},
}
