"""Replacements for functions of Lightning that have no support for HPU or for plugins.

Each factory takes the function that it replaces and the framework that the function belongs to.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from hpu_core import bridge, frameworks, plugins

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_FIRST_WITHOUT_HPU: Final = Version("2.1.dev0")


def clone_tensor(original: Callable[..., Any], _: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `_clone_tensor` of AsyncCheckpointIO that copies from the device to the host.

    A clone on the device would double the memory of the state until the other thread has written it.
    """

    @functools.wraps(original)
    def wrapper(tensor: Any) -> Any:
        return tensor.detach().cpu() if tensor.device.type == "hpu" else original(tensor)

    return wrapper


def get_available_flops(original: Callable[..., Any], framework: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `get_available_flops` that has the peak FLOP/s of Gaudi, for ThroughputMonitor."""

    @functools.wraps(original)
    def wrapper(device: Any, dtype: Any) -> Any:
        if device.type != "hpu" or frameworks.import_error(framework) is not None:
            return original(device, dtype)
        from hpu_core import throughput

        return throughput.peak_flops_of_machine(dtype)

    return wrapper


def init_profiler(original: Callable[..., None], framework: "FrameworkName") -> Callable[..., None]:
    """Return a replacement for `_init_profiler` that supports profilers of plugins: `Trainer(profiler="hpu")`."""

    @functools.wraps(original)
    def wrapper(trainer: Any, profiler: Any) -> None:
        if isinstance(profiler, str):
            path = _profiler_path(profiler.lower())
            if path is not None:
                frameworks.ensure_usable(framework)
                profiler = plugins.load(path)()
        original(trainer, profiler)

    return wrapper


def log_device_info(original: Callable[..., None], framework: "FrameworkName") -> Callable[..., None]:
    """Return a replacement for `_log_device_info` that also logs a line about HPUs, as Lightning does about GPUs."""

    @functools.wraps(original)
    def wrapper(trainer: Any) -> None:
        original(trainer)
        # Lightning 2.0 logs a line of its own.
        if frameworks.import_error(framework) is None and frameworks.current().version >= _FIRST_WITHOUT_HPU:
            _log_hpu_info(trainer)

    return wrapper


def is_oom_error(original: Callable[..., Any], _: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `is_oom_error` that recognises the bridge's errors, for BatchSizeFinder."""

    @functools.wraps(original)
    def wrapper(exception: BaseException) -> Any:
        return original(exception) or bridge.is_out_of_memory(exception)

    return wrapper


def plugin_to_compute_dtype(original: Callable[..., Any], _: "FrameworkName") -> Callable[..., Any]:
    """Return a replacement for `_plugin_to_compute_dtype` that honours a plugin's `compute_dtype`."""

    @functools.wraps(original)
    def wrapper(plugin: Any) -> Any:
        dtype = getattr(plugin, "compute_dtype", None)
        return original(plugin) if dtype is None else dtype

    return wrapper


def _log_hpu_info(trainer: Any) -> None:
    from hpu_core import discovery

    available = discovery.is_available()
    found = f" ({discovery.device_count()} x {discovery.device_name() or 'HPU'})" if available else ""
    used = trainer.num_devices if trainer.strategy.root_device.type == "hpu" else 0
    log = frameworks.current().pytorch("utilities").rank_zero_info
    log(f"HPU available: {available}{found}, using: {used} HPUs")


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
