"""Replacements for functions of Lightning that have no support for HPU or for plugins.

Each is called with the function that it replaces, the framework that the function belongs to, and its arguments.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from hpu_core import _lightning_2_0, bridge, discovery, frameworks, plugins, throughput
from hpu_core.registration import _hints

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

# Lightning's own.
_PROFILERS: Final = ("advanced", "pytorch", "simple", "xla")


def clone_tensor(original: Callable[..., Any], _: "FrameworkName", tensor: Any) -> Any:
    """Copy a tensor from the device to the host for AsyncCheckpointIO.

    A clone on the device would double the memory of the state until the other thread has written it.
    """
    return tensor.detach().cpu() if tensor.device.type == "hpu" else original(tensor)


def get_available_flops(original: Callable[..., Any], framework: "FrameworkName", device: Any, dtype: Any) -> Any:
    """Return the peak FLOP/s, also of Gaudi, for ThroughputMonitor."""
    if device.type != "hpu" or frameworks.import_error(framework) is not None:
        return original(device, dtype)
    return throughput.peak_flops_of_machine(dtype)


def init_profiler(original: Callable[..., None], framework: "FrameworkName", trainer: Any, profiler: Any) -> None:
    """Set the Trainer's profiler, also one of a plugin: `Trainer(profiler="hpu")`."""
    path = _profiler_path(profiler.lower()) if isinstance(profiler, str) else None
    if path is not None:
        error = frameworks.import_error(framework)
        if error is not None:
            raise error
        profiler = plugins.load(path)()
    try:
        original(trainer, profiler)
    except Exception as error:
        if isinstance(profiler, str):
            own = [name for plugin in plugins.installed().values() for name in plugin.profilers]
            _hints.append(error, _hints.did_you_mean(profiler, [*_PROFILERS, *own]))
        raise


def is_oom_error(original: Callable[..., Any], _: "FrameworkName", exception: BaseException) -> Any:
    """Return whether an error means that a device is out of memory, also one of the bridge, for BatchSizeFinder."""
    return original(exception) or bridge.is_out_of_memory(exception)


def log_device_info(original: Callable[..., None], framework: "FrameworkName", trainer: Any) -> None:
    """Log the devices, also a line about HPUs as Lightning does about GPUs."""
    original(trainer)
    if frameworks.import_error(framework) is not None or _lightning_2_0.applies_to(frameworks.current().version):
        return
    available = discovery.is_available()
    found = f" ({discovery.device_count()} x {discovery.device_name() or 'HPU'})" if available else ""
    used = trainer.num_devices if trainer.strategy.root_device.type == "hpu" else 0
    log = frameworks.current().pytorch("utilities").rank_zero_info
    log(f"HPU available: {available}{found}, using: {used} HPUs")


def plugin_to_compute_dtype(original: Callable[..., Any], _: "FrameworkName", plugin: Any) -> Any:
    """Return the dtype that a precision plugin computes in; a plugin may have an attribute for it."""
    dtype = getattr(plugin, "compute_dtype", None)
    return original(plugin) if dtype is None else dtype


def _profiler_path(name: str) -> str | None:
    """Return the import path of a plugin's profiler, None for one of Lightning's own.

    Raises:
        ModuleNotFoundError: The distribution of the profiler is not installed.
    """
    for plugin in plugins.installed().values():
        if name in plugin.profilers:
            return plugin.profilers[name]
    if name == "hpu":
        raise plugins.not_installed_error("`profiler='hpu'`", "hpu-profiler")
    return None
