"""Discovery of the Gaudi devices of this machine, without opening one.

Sources, in order: the bridge if this process has loaded it, pyhlml, sysfs, `hl-smi`. The first source that lists a
device decides which devices there are; the others add details. No source opens a device, so a launcher may call every
function here. `hl-smi` runs at most once per process.

`devices` lists a device that no source reports as "Operational", and nothing counts it. HABANA_VISIBLE_MODULES limits
what is counted, not what is listed.
"""

from packaging.version import Version

from hpu_core import bridge
from hpu_core.discovery import _free_modules, _holders, _parse_devices, _visible_modules
from hpu_core.discovery._availability import NoHPUError, no_device_error, usable_count, usable_modules
from hpu_core.discovery._device import HPUDevice, SourceResult
from hpu_core.discovery._generation import Generation
from hpu_core.discovery._scan import ScanResult, Sources, scan_sources
from hpu_core.discovery._synapse import synapse_release
from hpu_core.discovery._visible_modules import VisibleModulesError

__all__ = [
    "Generation",
    "HPUDevice",
    "NoHPUError",
    "ScanResult",
    "SourceResult",
    "VisibleModulesError",
    "auto_device_count",
    "check_devices",
    "device_count",
    "device_name",
    "devices",
    "free_modules",
    "is_available",
    "parse_devices",
    "scan",
    "select_modules",
    "synapse_version",
]


def scan() -> ScanResult:
    """Return every device and the result of each source, for messages and reports. Never raises."""
    return scan_sources(Sources())


def devices() -> tuple[HPUDevice, ...]:
    """Return every Gaudi device that is found, usable or not. Never raises."""
    return scan().devices


def device_count() -> int:
    """Return the number of devices that this process may use: operational and allowed by HABANA_VISIBLE_MODULES.

    Returns:
        The number of devices, 0 if none is found.

    Raises:
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    modules = _visible_modules.from_environment()
    return usable_count(devices(), modules)


def auto_device_count() -> int:
    """Return the number of devices for `devices="auto"`: all that this process may use.

    Raises:
        NoHPUError: There is none. The message lists the result of each source.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    modules = _visible_modules.from_environment()
    result = scan()
    count = usable_count(result.devices, modules)
    if count == 0:
        raise no_device_error(result)
    return count


def is_available() -> bool:
    """Return whether a device can be used. Never raises.

    An invalid HABANA_VISIBLE_MODULES counts as unset here: returning False would make `accelerator="auto"` train on the
    CPU silently, while `device_count` and `parse_devices`, which run next, raise an error that names the variable.
    """
    found = devices()
    try:
        return usable_count(found, _visible_modules.from_environment()) > 0
    except VisibleModulesError:
        return any(device.is_operational for device in found)


def device_name() -> Generation | None:
    """Return the generation of the devices: "GAUDI", "GAUDI2" or "GAUDI3".

    Unlike the bridge's `get_device_name`, this opens no device.

    Returns:
        The generation of the first operational device, None if there is no device or its generation is unknown.
    """
    return next((device.generation for device in devices() if device.is_operational), None)


def synapse_version() -> Version | None:
    """Return the installed SynapseAI release, such as 1.24.1.482. Never raises.

    The first of these that is known:

    1. The version of the distribution habana-torch-plugin, which is the bridge that training uses.
    2. The output of `hl-smi -v`, which belongs to the same user-space installation.
    3. The driver version, if all devices report the same. In a container the driver is the host's and may be of another
       release.

    Returns:
        The release, with its build if that is known; None if the release is unknown.
    """
    release = synapse_release(bridge.plugin_version(), devices())
    return release.version if release else None


def parse_devices(devices: object) -> int:
    """Return the number of devices for the `devices` argument of a Trainer or Fabric.

    A positive int, also as text, is that number. "auto" and -1 are all devices that can be used. For a list of indices,
    such as [1], "1," or "0,1", it is their number; `select_modules` returns which they are.

    Args:
        devices: The user's value.

    Raises:
        TypeError: `devices` is None, a bool, a float or of another type that Lightning rejects, too.
        ValueError: `devices` is an invalid value, such as 0, "two" or [1, 1]. `check_devices` checks whether there are
            so many devices.
        NoHPUError: `devices` is "auto" or -1, and there is no device.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    return _parse_devices.parse(devices, count_all=auto_device_count)


def select_modules(devices: object) -> tuple[int, ...] | None:
    """Return the module ids of the devices that `devices` lists by index.

    An index counts the devices that can be used: the entries of HABANA_VISIBLE_MODULES, or all operational devices in
    the order of their module ids.

    Args:
        devices: The user's value.

    Returns:
        Module ids in the order of the list, or None if `devices` is a number or no device is found.

    Raises:
        TypeError: An entry of the list is not an int.
        ValueError: The list is invalid, or has an index without a device.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    indices = _parse_devices.parse_indices(devices)
    found = scan().devices if indices is not None else ()
    if indices is None or not found:
        return None
    modules = usable_modules(found, _visible_modules.from_environment())
    if max(indices) >= len(modules):
        raise ValueError(
            f"`devices` must list cards from 0 to {len(modules) - 1}, the ones that can be used here, got {devices!r}"
        )
    return tuple(modules[index] for index in indices)


def free_modules(n: int) -> tuple[int, ...]:
    """Return the module ids of `n` devices that no process holds, and keep them for this process until it exits.

    For machines that do not isolate devices, such as those of a SLURM cluster: a job's launching process calls it once
    and sets HABANA_VISIBLE_MODULES to the result. It sets nothing itself and opens no device. A module that another
    process got from this function stays that process's own, even before it opens the device; the locks are in
    /tmp/hpu-module-locks, or in the folder of HPU_MODULE_LOCKS, which all jobs of a machine have to share.

    Without root the open files of other users' processes cannot be read. Their devices are recognized by the memory
    that `hl-smi` reports as used. On the simulator, only the locks are compared.

    Args:
        n: Number of modules.

    Returns:
        Module ids, ascending or in the order of HABANA_VISIBLE_MODULES, which limits the choice.

    Raises:
        TypeError: `n` is not an int.
        ValueError: `n` is less than 1.
        NoHPUError: No device can be used.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
        RuntimeError: Fewer than `n` are free. The message names the processes that hold the others, where it can.
        OSError: The folder of the locks cannot be used.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"`n` must be a positive int, got {n!r}")
    if n < 1:
        raise ValueError(f"`n` must be a positive int, got {n!r}")
    result = scan()
    modules = usable_modules(result.devices, _visible_modules.from_environment())
    if not modules:
        raise no_device_error(result)
    simulated = any(device.simulated for device in result.devices)
    return _free_modules.take(
        n,
        modules,
        # Processes of this machine do not hold simulated devices by their nodes.
        _holders.Holders() if simulated else _holders.find(),
        used=frozenset() if simulated else _free_modules.used_modules(),
        folder=_free_modules.folder(simulated=simulated),
    )


def check_devices(number: int) -> None:
    """Raise an error if this machine has fewer usable devices than processes to start.

    Strategies for several devices call it before they launch processes. Where discovery finds no device at all, it
    accepts any number.

    Args:
        number: Number of devices to use on this machine.

    Raises:
        ValueError: There are fewer. The message has their number.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    _parse_devices.check(number, available=device_count())
