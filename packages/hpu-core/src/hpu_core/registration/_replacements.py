"""Replacements for connectors and functions of Lightning that have no support for HPU or for plugins.

Each function is called with the one that it replaces, the framework that this belongs to, and its arguments.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from hpu_core import _lightning_2_0, bridge, discovery, frameworks, plugins, throughput
from hpu_core.frameworks import FrameworkName
from hpu_core.registration import _cli, _connectors, _hints, _patch, _torchmetrics

# Lightning's own.
_PROFILERS: Final = ("advanced", "pytorch", "simple", "xla")

# Key of Lightning's states of random generators, which has one for "torch.cuda" as well.
_HPU_STATE: Final = "torch.hpu"


def patch(module: ModuleType) -> None:
    """Replace the names that a module of Lightning defines, and extend its command line if it is that.

    That of torchmetrics has the base class of metrics, which is changed in place.
    """
    if module.__name__ == _torchmetrics.MODULE:
        _torchmetrics.patch(module)
        return
    framework = _patch.framework_of(module)
    if module.__name__.endswith("fabric.cli"):
        _cli.extend_options(module, framework)
    elif module.__name__.endswith(".cli"):
        _cli.load_classes(framework)
    _patch.patch(module, _REPLACEMENTS)


def clone_tensor(original: Callable[..., Any], _: FrameworkName, tensor: Any) -> Any:
    """Copy a tensor from the device to the host for AsyncCheckpointIO.

    A clone on the device would double the memory of the state until the other thread has written it.
    """
    return tensor.detach().cpu() if tensor.device.type == "hpu" else original(tensor)


def collect_rng_states(original: Callable[..., Any], _: FrameworkName, include_cuda: bool = True) -> Any:
    """Return the states of all random generators, also the device's, for `isolate_rng` and for spawned ranks.

    A launching process has a generator without opening a device; without the bridge, it has none.
    """
    states = original(include_cuda)
    if include_cuda and bridge.is_loaded():
        states[_HPU_STATE] = bridge.get_rng_state()
    return states


def set_rng_states(original: Callable[..., None], _: FrameworkName, rng_state_dict: dict[str, Any]) -> None:
    """Set the states of all random generators, also the device's."""
    original(rng_state_dict)
    if _HPU_STATE in rng_state_dict:
        bridge.set_rng_state(rng_state_dict[_HPU_STATE])


def get_available_flops(original: Callable[..., Any], framework: FrameworkName, device: Any, dtype: Any) -> Any:
    """Return the peak FLOP/s, also of Gaudi, for ThroughputMonitor."""
    if device.type != "hpu" or frameworks.import_error(framework) is not None:
        return original(device, dtype)
    return throughput.peak_flops_of_machine(dtype)


def init_profiler(original: Callable[..., None], framework: FrameworkName, trainer: Any, profiler: Any) -> None:
    """Set the Trainer's profiler, also one of a plugin: `Trainer(profiler="hpu")`."""
    # The first plugin that has a name comes last, and stays.
    installed = reversed(list(plugins.installed().values()))
    profilers = {name: path for plugin in installed for name, path in plugin.profilers.items()}
    name = profiler.lower() if isinstance(profiler, str) else ""
    if name in profilers:
        error = frameworks.import_error(framework)
        if error is not None:
            raise error
        profiler = plugins.load(profilers[name])()
    elif name == "hpu":
        raise plugins.not_installed_error("`profiler='hpu'`", "hpu-profiler")
    try:
        original(trainer, profiler)
    except Exception as error:
        if isinstance(profiler, str):
            _hints.append(error, _hints.did_you_mean(profiler, [*_PROFILERS, *profilers]))
        raise


def is_oom_error(original: Callable[..., Any], _: FrameworkName, exception: BaseException) -> Any:
    """Return whether an error means that a device is out of memory, also one of the bridge, for BatchSizeFinder."""
    return original(exception) or bridge.is_out_of_memory(exception)


def log_device_info(original: Callable[..., None], framework: FrameworkName, trainer: Any) -> None:
    """Log the devices, also a line about HPUs as Lightning does about GPUs."""
    original(trainer)
    if frameworks.import_error(framework) is not None or _lightning_2_0.applies_to(frameworks.current().version):
        return
    available = discovery.is_available()
    found = f" ({discovery.device_count()} x {discovery.device_name() or 'HPU'})" if available else ""
    used = trainer.num_devices if trainer.strategy.root_device.type == "hpu" else 0
    log = frameworks.current().pytorch("utilities").rank_zero_info
    log(f"HPU available: {available}{found}, using: {used} HPUs")


def plugin_to_compute_dtype(original: Callable[..., Any], _: FrameworkName, plugin: Any) -> Any:
    """Return the dtype that a precision plugin computes in; a plugin may have an attribute for it."""
    dtype = getattr(plugin, "compute_dtype", None)
    return original(plugin) if dtype is None else dtype


_REPLACEMENTS: Final[Mapping[str, _patch.Replacement]] = {
    "_AcceleratorConnector": _connectors.TrainerConnectorMixin,
    "_Connector": _connectors.FabricConnectorMixin,
    "_clone_tensor": clone_tensor,
    "_collect_rng_states": collect_rng_states,
    "_get_num_processes": _cli.get_num_processes,
    "_init_profiler": init_profiler,
    "_log_device_info": log_device_info,
    "_plugin_to_compute_dtype": plugin_to_compute_dtype,
    "_set_rng_states": set_rng_states,
    "get_available_flops": get_available_flops,
    "is_oom_error": is_oom_error,
}
