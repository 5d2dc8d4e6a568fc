"""Replacements for connectors and functions of Lightning that have no support for HPU or for plugins.

Each function is called with the one that it replaces, the framework that this belongs to, and its arguments.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from hpu_core import _lightning_2_0, bridge, discovery, frameworks, plugins
from hpu_core.frameworks import FrameworkName
from hpu_core.registration import _connectors, _patch, _torchmetrics

# Key of Lightning's states of random generators, which has one for "torch.cuda" as well.
_HPU_STATE: Final = "torch.hpu"


def patch(module: ModuleType) -> None:
    """Replace the names that a module of Lightning defines.

    That of torchmetrics has the base class of metrics, which is changed in place.
    """
    if module.__name__ == _torchmetrics.MODULE:
        _torchmetrics.patch(module)
        return
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
    original(trainer, profiler)


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


_REPLACEMENTS: Final[Mapping[str, _patch.Replacement]] = {
    "_AcceleratorConnector": _connectors.TrainerConnectorMixin,
    "_Connector": _connectors.FabricConnectorMixin,
    "_clone_tensor": clone_tensor,
    "_collect_rng_states": collect_rng_states,
    "_init_profiler": init_profiler,
    "_log_device_info": log_device_info,
    "_set_rng_states": set_rng_states,
    "is_oom_error": is_oom_error,
}
