"""The seam to Intel's PyTorch bridge: the only module that imports `habana_frameworks`, inside its functions.

The same functions speak to the simulator, which offers the bridge's modules. "Opens the card" below means that the
process takes a card for itself alone until it ends; a launcher must never do that.

Source of the facts: the bridge's Python sources at 1.19.0 and a 2025 snapshot after it. Nothing here was run on a card.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

_BRIDGE = "habana_frameworks.torch"

# Importing any bridge module sets these where they are unset, which makes every later job on the machine meet at the
# same port.
_RENDEZVOUS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "12345"}

_ABSENT = (
    "the Gaudi PyTorch bridge (`habana_frameworks`) is not installed. On a Gaudi machine use Intel's PyTorch image or "
    'the `habana-torch-plugin` of your SynapseAI release; without a card, `pip install "hpu-sim"` and start the '
    "program with `hpu-sim run` or HPU_SIM_DEVICES=1."
)


def is_loaded() -> bool:
    """Tell whether this process has imported the bridge. Imports nothing and never raises."""
    return sys.modules.get(_BRIDGE) is not None


def is_installed() -> bool:
    """Tell whether the bridge can be found. Loads nothing of it, opens no card and never raises."""
    if is_loaded():
        return True
    try:
        return importlib.util.find_spec(_BRIDGE) is not None
    except ImportError:
        # The parent package is absent.
        return False


def load() -> ModuleType:
    """Import the bridge, which registers `torch.hpu` and the "hccl" backend. Does not open a card.

    MASTER_ADDR and MASTER_PORT stay as they were: the bridge's import would otherwise set them to a fixed address.

    Returns:
        The module `habana_frameworks.torch`.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
        ImportError: The bridge is installed but cannot be imported.
    """
    return _import(_BRIDGE)


def load_hccl() -> ModuleType:
    """Import the bridge's module for collectives, which registers the "hccl" backend. Does not open a card.

    Importing it makes the bridge read the distributed variables of this process once; see `load` for the errors.
    """
    return _import(f"{_BRIDGE}.distributed.hccl")


def is_simulated() -> bool:
    """Tell whether the loaded bridge is the simulator. False while no bridge is loaded."""
    return getattr(sys.modules.get(_BRIDGE), "__simulated__", False) is True


def plugin_version() -> str | None:
    """Return the version of the installed bridge, such as "1.24.1.482", or None when it does not say. Loads nothing."""
    try:
        return importlib.metadata.version("habana-torch-plugin")
    except importlib.metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(_BRIDGE), "__version__", None)
        return version if isinstance(version, str) else None


def is_lazy() -> bool:
    """Tell whether the bridge collects operations into graphs (lazy mode) rather than running each at once (eager).

    The bridge decides by PT_HPU_LAZY_MODE when it is first imported; setting the variable later has no effect.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
    """
    return bool(_import(f"{_BRIDGE}.core").is_lazy())


def mark_step() -> None:
    """Close the graph collected so far and send it to the card (lazy mode); do nothing in eager mode.

    In lazy mode this may open the card.

    Raises:
        ModuleNotFoundError: The bridge is not installed. Code that also runs without it can ask `is_available` first.
    """
    _import(f"{_BRIDGE}.core").mark_step()


def mark_step_if_lazy() -> Callable[[], None] | None:
    """Return the bridge's `mark_step` in lazy mode and None in eager mode, to be asked once and called often.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
    """
    if not is_lazy():
        return None
    mark: Callable[[], None] = _import(f"{_BRIDGE}.core").mark_step
    return mark


def open_device() -> None:
    """Open the card for this process, unless it is open already.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
        RuntimeError: No card could be opened: there is none, or another process has it.
    """
    hpu = _import(f"{_BRIDGE}.hpu")
    try:
        hpu.init()
    except RuntimeError as error:
        raise RuntimeError(
            f"no Gaudi card could be opened: {error} One process takes one card and keeps it until it ends; run "
            "`hpu-info` to see the cards, and `hl-smi` as root to see who has them."
        ) from error


def is_open() -> bool:
    """Tell whether this process has opened its card. Imports nothing and opens nothing."""
    hpu = sys.modules.get(f"{_BRIDGE}.hpu")
    return hpu is not None and bool(hpu.is_initialized())


def synchronize() -> None:
    """Wait until the card has finished everything it was given. Opens the card."""
    _import(f"{_BRIDGE}.hpu").synchronize()


def memory_stats() -> dict[str, int]:
    """Return the card's memory figures: bytes ("Limit", "InUse", ...) and numbers of allocations. Opens the card."""
    return dict(_import(f"{_BRIDGE}.hpu").memory_stats())


def metric(name: str) -> dict[str, object]:
    """Return what the bridge counts under a name, such as "graph_compilation"; empty where it counts no such thing.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
    """
    metric_global = getattr(_import(f"{_BRIDGE}.hpu"), "metric_global", None)
    counted = None if metric_global is None else metric_global(name)
    return {} if counted is None else dict(counted.stats())


def device_count() -> int:
    """Return how many cards the driver shows, whatever HABANA_VISIBLE_MODULES says. Opens no card."""
    return int(_import(f"{_BRIDGE}.hpu").device_count())


def generation() -> str:
    """Return the generation of the cards: "GAUDI", "GAUDI2" or "GAUDI3". Opens no card."""
    # The public `hpu.get_device_name` opens the card. `_get_device_type` does not, and DeepSpeed and Optimum rely on
    # it as well. It gives an enum whose members are synDeviceGaudi, synDeviceGaudi2, ...
    kind = _import(f"{_BRIDGE}.utils.experimental")._get_device_type()  # noqa: SLF001 - see above
    name = getattr(kind, "name", str(kind))
    return str(name).rpartition(".")[2].removeprefix("synDevice").upper()


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that a card's memory is full.

    Args:
        error: Of whatever was run on the card. The bridge's is a RuntimeError with a text that users report as "FATAL
            ERROR :: MODULE:PT_DEVMEM Allocation failed for size::..."; the simulator's is torch's OutOfMemoryError.
    """
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    return "PT_DEVMEM Allocation failed" in text or "HPU out of memory" in text


def is_fp16_supported() -> bool:
    """Tell whether the cards compute in float16, as all but the first generation do. Opens no card."""
    # The bridge's only word on it; DeepSpeed asks there as well.
    return bool(_import(f"{_BRIDGE}.utils.experimental")._is_fp16_supported())  # noqa: SLF001 - see above


def hmp() -> ModuleType | None:
    """Import HMP, the mixed precision of releases up to 1.12, or return None where the bridge has none. Opens no card.

    Importing it changes nothing yet: its `convert` does, for the rest of the process.

    Raises:
        ModuleNotFoundError: The bridge is not installed.
    """
    load()
    name = f"{_BRIDGE}.hpex.hmp"
    try:
        found = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        # There is no `hpex` either.
        found = False
    if not found:
        return None
    with warnings.catch_warnings():
        # It announces its own removal, and who asks here knows what to do without it.
        warnings.simplefilter("ignore")
        return _import(name)


def transformer_engine() -> ModuleType:
    """Import Intel's transformer engine, whose layers compute in fp8. Opens no card.

    Raises:
        ModuleNotFoundError: The bridge is not installed, or it has no transformer engine.
    """
    load()
    name = f"{_BRIDGE}.hpex.experimental.transformer_engine"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModuleNotFoundError(
            "training in fp8 needs Intel's transformer engine, which the Gaudi PyTorch bridge "
            f"{plugin_version() or '(unknown version)'} does not offer here: {error}. Bridges from about 1.14 on have "
            "it; from 1.19 on they take it from the package `intel_transformer_engine`, which comes with Intel's "
            "PyTorch image.",
            name=error.name or name,
        ) from error


def set_inference_env() -> None:
    """Switch the bridge to inference with quantized modules, before they are converted and moved. Opens no card."""
    core = _import(f"{_BRIDGE}.core")
    # Bridges up to 1.19 know the older name alone, later ones print that it is deprecated.
    (core.hpu_inference_set_env if hasattr(core, "hpu_inference_set_env") else core.hpu_set_env)()


def initialize_inference(module: object) -> None:
    """Tell the bridge that the scales of a quantized module are constants.

    Args:
        module: The converted `torch.nn.Module`, on the card.
    """
    core = _import(f"{_BRIDGE}.core")
    core.hpu_inference_initialize(module, mark_only_scales_as_const=True)


def device_name() -> str:
    """Return the name that the card itself gives, such as "GAUDI2"; empty without a card. Opens the card."""
    return str(_import(f"{_BRIDGE}.hpu").get_device_name())


def initialize_distributed(world_size: int, rank: int, local_rank: int) -> tuple[int, int, int]:
    """Call the bridge's `initialize_distributed_hpu`, which sets the process's distributed variables. Opens no card.

    Use `hpu_core.initialize_hccl`, which checks the numbers and handles the call's traps.

    Returns:
        (world_size, rank, local_rank) as the bridge understood them.
    """
    world, index, local = load_hccl().initialize_distributed_hpu(
        world_size=world_size, rank=rank, local_rank=local_rank
    )
    return int(world), int(index), int(local)


def clear_default_rendezvous_env() -> None:
    """Remove the MASTER_ADDR and MASTER_PORT that the bridge set when somebody else imported it.

    Since torch 2.5 `import torch` imports the bridge by itself, before this module can keep the variables as they were.
    What the process was started with is its user's or its launcher's and stays, the port 12345 as well. The same port
    set by the program itself cannot be told from the bridge's, and goes.
    """
    if not is_loaded():
        return
    started_with = _starting_environment()
    for name, value in _RENDEZVOUS.items():
        if os.environ.get(name) == value and name not in started_with:
            del os.environ[name]


def _starting_environment() -> frozenset[str]:
    """Return the names of the variables that this process was started with; none where the system does not tell."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return frozenset()
    return frozenset(os.fsdecode(entry.partition(b"=")[0]) for entry in block.split(b"\0"))


# The cache leaves a single dictionary look-up to each call; a failed import is not kept.
@functools.cache
def _import(name: str) -> ModuleType:
    """Import the bridge's module `name`, turning the ways in which this fails into one clear sentence."""
    with _rendezvous_kept():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in {"habana_frameworks", _BRIDGE}:
                raise ModuleNotFoundError(_ABSENT, name=error.name) from error
            raise ImportError(_broken(error), name=name) from error
        except (ImportError, AssertionError, OSError, RuntimeError) as error:
            # The bridge asserts torch's version, loads shared libraries and refuses stock torch in lazy mode.
            raise ImportError(_broken(error), name=name) from error


def _broken(error: Exception) -> str:
    return (
        f"the Gaudi PyTorch bridge is installed ({plugin_version() or 'unknown version'}) but cannot be imported: "
        f"{type(error).__name__}: {error}. Its torch, driver and SynapseAI must be of one release; `hpu-info` shows "
        "what does not match."
    )


@contextmanager
def _rendezvous_kept() -> Iterator[None]:
    """Undo what the body does to MASTER_ADDR and MASTER_PORT."""
    before = {name: os.environ.get(name) for name in _RENDEZVOUS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
