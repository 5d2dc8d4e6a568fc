"""Interface to Intel's PyTorch bridge, and the only module that imports `habana_frameworks`, inside functions.

The simulator provides the same modules, so the functions work with it as well. "Opens the device" means that the
process acquires a device exclusively until it exits; a launcher must never do that.

Functions that use the bridge import it first. They raise a ModuleNotFoundError if it is not installed, and an
ImportError if it cannot be imported; `is_installed` and `hpu_core.is_available` tell beforehand.

Source of the facts: the bridge's Python sources at 1.19.0 and a later snapshot of 2025. None of this was run on a card.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from hpu_core import _rendezvous_env

if TYPE_CHECKING:
    import torch

_BRIDGE: Final = _rendezvous_env.BRIDGE

PACKAGE: Final = "habana_frameworks"
"""Top-level package of the bridge, for code that classifies modules by name."""

# Texts of the bridge's and the simulator's errors, the former as users report them:
# "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::..." and
# "... MODULE:PT_SYNHELPER workspace Allocation of size ::... failed!" (optimum-habana#1134).
_OUT_OF_MEMORY = ("PT_DEVMEM Allocation failed", "PT_SYNHELPER workspace Allocation of size", "HPU out of memory")

# How long a card that was reset may take to be free again, and between two attempts to open it.
_RESET_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 1.0
# Between two looks whether the device has finished.
_QUERY_SECONDS: Final = 0.001


def is_loaded() -> bool:
    """Return whether this process has imported the bridge. Imports nothing and never raises."""
    return sys.modules.get(_BRIDGE) is not None


def is_installed() -> bool:
    """Return whether the bridge can be imported. Does not import it, and never raises."""
    if is_loaded():
        return True
    try:
        return importlib.util.find_spec(_BRIDGE) is not None
    except ImportError:
        # The parent package does not exist.
        return False


def load() -> ModuleType:
    """Import the bridge, which registers `torch.hpu` and the "hccl" backend. Does not open the device.

    MASTER_ADDR and MASTER_PORT keep their values; the bridge's import alone would set them to a fixed endpoint.
    """
    # hpu-doctor verify: import-sets-up-torch, import-opens-no-card
    return _import()


def load_hccl() -> ModuleType:
    """Import the bridge's module for collectives, which registers the "hccl" backend. Does not open the device.

    The import reads the distributed variables of this process, once.
    """
    return _import("distributed.hccl")


def is_simulated() -> bool:
    """Return whether the loaded bridge is the simulator; False if no bridge is loaded."""
    return getattr(sys.modules.get(_BRIDGE), "__simulated__", False) is True


def plugin_version() -> str | None:
    """Return the version of the installed bridge, such as "1.24.1.482"; None if it is unknown. Does not import it."""
    try:
        return importlib.metadata.version("habana-torch-plugin")
    except importlib.metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(_BRIDGE), "__version__", None)
        return version if isinstance(version, str) else None


def is_lazy() -> bool:
    """Return whether the bridge is in lazy mode, where it records operations as graphs, and not in eager mode.

    PT_HPU_LAZY_MODE selects the mode when the bridge is first imported, and has no effect afterwards.
    """
    # hpu-doctor verify: functions-of-all-releases, default-mode-is-eager
    return bool(_import("core").is_lazy())


def mark_step() -> None:
    """Launch the graph recorded so far (lazy mode); do nothing in eager mode. May open the device."""
    # hpu-doctor verify: functions-of-all-releases
    _import("core").mark_step()


def mark_step_if_lazy() -> Callable[[], None] | None:
    """Return the bridge's `mark_step` in lazy mode, None in eager mode."""
    return _import("core").mark_step if is_lazy() else None


def open_device(is_in_reset: Callable[[], bool] = lambda: False) -> None:
    """Open the device for this process, unless it is open.

    Args:
        is_in_reset: Whether the driver may be resetting a card, as it does when a process is killed in the middle of
            its work; asked after a failure. For so long, but for a minute at most, it is tried again.

    Raises:
        RuntimeError: There is no device, or another process has it.
    """
    # hpu-doctor verify: calls-open-the-card
    hpu = _import("hpu")
    deadline = time.monotonic() + _RESET_SECONDS
    try:
        while True:
            try:
                hpu.init()
            except RuntimeError:  # noqa: PERF203 - a second passes between two attempts.
                if time.monotonic() > deadline or not is_in_reset():
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return
    except RuntimeError as error:
        hint = (
            "more simulated cards are `hpu-sim run --devices N` or HPU_SIM_DEVICES=N."
            if is_simulated()
            else "`hpu-info` shows the cards, and `hl-smi` as root the processes that use them."
        )
        raise RuntimeError(
            f"no Gaudi card could be opened: {error} A process opens one card and keeps it until it exits; {hint}"
        ) from error


def is_open() -> bool:
    """Return whether this process has opened its device. Imports nothing."""
    hpu = sys.modules.get(f"{_BRIDGE}.hpu")
    return hpu is not None and bool(hpu.is_initialized())


def is_own_function(function: object) -> bool:
    """Return whether a function is defined in the bridge, such as one that replaces torch's. Imports nothing."""
    # `__module__` may be that of the function that it wraps.
    module = str(getattr(function, "__globals__", {}).get("__name__"))
    return f"{module}.".startswith(f"{PACKAGE}.")


def synchronize(check: Callable[[], None] | None = None) -> None:
    """Wait until the device has finished all work. Opens the device.

    Args:
        check: Called again and again meanwhile, and may raise. The bridge's own call keeps Python's lock.
    """
    # hpu-doctor verify: functions-of-all-releases
    hpu = _import("hpu")
    if check is None:
        hpu.synchronize()
        return
    event = hpu.Event()
    event.record()
    while not event.query():
        check()
        time.sleep(_QUERY_SECONDS)


def get_rng_state() -> "torch.Tensor":
    """Return the state of the device's generator, a uint8 tensor on the CPU. Opens no device."""
    # hpu-doctor verify: state-restores-the-stream, queries-open-no-card
    # `get_rng_state()` opens the device.
    state: torch.Tensor = _import("hpu").get_rng_state_all()[0]
    return state


def set_rng_state(state: "torch.Tensor") -> None:
    """Set the state of the device's generator, a result of `get_rng_state`. Opens no device."""
    # hpu-doctor verify: state-restores-the-stream
    # torch 2.13 crashes on a view into a larger tensor.
    _import("hpu").set_rng_state_all([state.clone()])


def memory_stats() -> dict[str, int]:
    """Return the memory statistics of the device: bytes ("Limit", "InUse", ...) and counts. Opens the device."""
    # hpu-doctor verify: memory-stats-keys
    return dict(_import("hpu").memory_stats())


def metric(name: str) -> dict[str, object]:
    """Return the values of a metric of the bridge, such as "graph_compilation"; empty if it has no such metric."""
    metric_global = getattr(_import("hpu"), "metric_global", None)
    counter = None if metric_global is None else metric_global(name)
    return {} if counter is None else dict(counter.stats())


@contextlib.contextmanager
def compile_only() -> Iterator[bool]:
    """Return a context in which graphs are compiled and not executed, where the bridge has a flag for it.

    The flag, PT_COMPILE_ONLY_MODE, is in the sources of bridge 1.19. A serving engine recognizes older bridges by the
    KeyError.

    Yields:
        Whether the bridge has the flag.
    """
    # hpu-doctor verify: compile-only-flag-exists
    load()
    with contextlib.ExitStack() as stack:
        try:
            setting = _import("internal.bridge_config").env_setting
            stack.enter_context(setting("PT_COMPILE_ONLY_MODE", True))
        except (AttributeError, ImportError, KeyError):
            yield False
        else:
            yield True


def cache_hpu_graphs(
    module: object,
    *,
    max_graphs: int,
    allow_unused_input: bool = False,
    have_grad_accumulation: bool = False,
    disable_tensor_cache: bool = False,
) -> None:
    """Replace a module's `forward` by one that captures an HPU graph of forward and backward per set of input shapes.

    Args:
        module: The `torch.nn.Module`, changed in place.
        max_graphs: Largest number of graphs to keep.
        allow_unused_input: Whether inputs and parameters may have no gradient.
        have_grad_accumulation: Whether gradients of several passes are added up.
        disable_tensor_cache: Whether to free the tensors of a graph between its replays.

    Raises:
        RuntimeError: The bridge is in eager mode, where it has no graphs.
    """
    # hpu-doctor verify: cached-module-has-gradients
    _graph_function("ModuleCacher")(max_graphs)(
        model=module,
        inplace=True,
        allow_unused_input=allow_unused_input,
        have_grad_accumulation=have_grad_accumulation,
        disable_tensor_cache=disable_tensor_cache,
    )


def wrap_in_hpu_graph(module: object, *, max_graphs: int | None = None, disable_tensor_cache: bool = False) -> None:
    """Replace `forward` as `cache_hpu_graphs` does, without gradients.

    Shapes beyond `max_graphs` run without a graph; None is no limit.

    Raises:
        RuntimeError: The bridge is in eager mode, where it has no graphs.
    """
    # hpu-doctor verify: wrapped-module-agrees
    _graph_function("wrap_in_hpu_graph")(module, disable_tensor_cache=disable_tensor_cache, max_graphs=max_graphs)


def device_count() -> int:
    """Return the number of devices that the driver reports, regardless of HABANA_VISIBLE_MODULES. Opens no device."""
    # hpu-doctor verify: queries-open-no-card
    return int(_import("hpu").device_count())


def generation() -> str:
    """Return the generation of the devices: "GAUDI", "GAUDI2" or "GAUDI3". Opens no device."""
    # hpu-doctor verify: queries-open-no-card
    # The public `hpu.get_device_name` opens the device. `_get_device_type` does not, and DeepSpeed and Optimum use it,
    # too. Its result is an enum member: synDeviceGaudi, synDeviceGaudi2, ...
    kind = _import("utils.experimental")._get_device_type()  # noqa: SLF001 - see above
    name = getattr(kind, "name", str(kind))
    return str(name).rpartition(".")[2].removeprefix("synDevice").upper()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the device ran out of memory.

    Args:
        error: A RuntimeError of the bridge, which has no error class of its own for this, or torch's OutOfMemoryError.
    """
    # hpu-doctor verify: out-of-memory-text
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def is_fp16_supported() -> bool:
    """Return whether the devices support float16, as all but the first generation do. Opens no device."""
    # hpu-doctor verify: dtypes-that-are-supported
    # The bridge has no public function for it; DeepSpeed uses this one, too.
    return bool(_import("utils.experimental")._is_fp16_supported())  # noqa: SLF001 - see above


def optional_module(name: str) -> ModuleType | None:
    """Import a module below `habana_frameworks.torch`; return None if this bridge has none. Opens no device."""
    load()
    try:
        found = importlib.util.find_spec(f"{_BRIDGE}.{name}") is not None
    except ModuleNotFoundError:
        # Its parent does not exist either.
        found = False
    return _import(name) if found else None


def load_media(name: str) -> ModuleType:
    """Import a module of Intel's media loader, such as "fn" of `habana_frameworks.mediapipe`. Opens no device.

    Raises:
        ImportError: The bridge is not installed, or has no media loader, which is a wheel of its own.
    """
    load()
    return importlib.import_module(f"{PACKAGE}.mediapipe.{name}")


def transformer_engine() -> ModuleType:
    """Import Intel's transformer engine, whose layers support fp8. Opens no device.

    Raises:
        ModuleNotFoundError: The bridge is not installed, or has no transformer engine.
    """
    # hpu-doctor verify: transformer-engine-computes
    load()
    name = f"{_BRIDGE}.hpex.experimental.transformer_engine"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            "training in fp8 needs Intel's transformer engine, which cannot be imported from the Gaudi PyTorch bridge "
            f"{plugin_version() or '(unknown version)'}: {error}. Bridges from about 1.14 on have it; from 1.19 on "
            "they import it from the package `intel_transformer_engine`, which comes with Intel's PyTorch image.",
            name=error.name or name,
        ) from error


def set_inference_env() -> None:
    """Prepare the bridge for inference with quantized modules, before they are converted and moved. Opens no device."""
    # hpu-doctor verify: functions-from-1-20, functions-to-1-19
    core = _import("core")
    # Bridges up to 1.19 have the old name only, and later ones warn about it.
    (core.hpu_inference_set_env if hasattr(core, "hpu_inference_set_env") else core.hpu_set_env)()


def initialize_inference(module: object) -> None:
    """Mark the scales of a converted module, a `torch.nn.Module` on the device, as constants."""
    # hpu-doctor verify: functions-from-1-20, functions-to-1-19
    _import("core").hpu_inference_initialize(module, mark_only_scales_as_const=True)


def initialize_distributed(world_size: int, rank: int, local_rank: int) -> tuple[int, int, int]:
    """Return what the bridge's `initialize_distributed_hpu` returns, which sets the distributed variables.

    Opens no device. Use `hpu_core.initialize_hccl`, which validates the arguments and selects the device.
    """
    # hpu-doctor verify: rank-selects-module
    job: tuple[int, int, int] = load_hccl().initialize_distributed_hpu(
        world_size=world_size, rank=rank, local_rank=local_rank
    )
    return job


def _graph_function(name: str) -> Callable[..., Any]:
    # Up to 1.19 eager mode lacks the names; later bridges raise at the first capture.
    if not is_lazy():
        raise RuntimeError(f"{name} needs lazy mode (PT_HPU_LAZY_MODE=1); use torch.compile in eager mode")
    function: Callable[..., Any] = getattr(_import("hpu"), name)
    return function


# Cached, so that each call costs one dictionary look-up. A failed import is not cached.
@functools.cache
def _import(name: str = "") -> ModuleType:
    """Import the bridge or a module of it; raise one clear error for the various ways in which that fails."""
    name = f"{_BRIDGE}.{name}".rstrip(".")
    with _rendezvous_env.preserve():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in {PACKAGE, _BRIDGE}:
                raise ModuleNotFoundError(_not_installed(), name=error.name) from error
            raise ImportError(_import_failure(error), name=name) from error
        except (ImportError, AssertionError, OSError, RuntimeError) as error:
            # The bridge asserts torch's version, loads shared libraries, and rejects stock torch in lazy mode.
            raise ImportError(_import_failure(error), name=name) from error


def _not_installed() -> str:
    # Imported here: every `import torch` imports this module.
    from hpu_core.install_hints import install_command

    return (
        "the Gaudi PyTorch bridge (`habana_frameworks`) is not installed. On a Gaudi machine use Intel's PyTorch image "
        "or the `habana-torch-plugin` of your SynapseAI release; without a card, "
        f"`{install_command('hpu-sim')}` and start the program with `hpu-sim run` or HPU_SIM_DEVICES=1."
    )


def _import_failure(error: Exception) -> str:
    return (
        f"the Gaudi PyTorch bridge is installed ({plugin_version() or 'unknown version'}) but cannot be imported: "
        f"{type(error).__name__}: {error}. Its torch, driver and SynapseAI must be of one release; `hpu-info` shows "
        "what does not match."
    )
