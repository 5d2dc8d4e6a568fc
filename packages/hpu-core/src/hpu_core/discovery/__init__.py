"""Discovery of the Gaudi devices of this machine, without opening one.

Sources: the bridge if this process has loaded it, and sysfs. If the bridge counts devices, those are the ones there
are, and sysfs adds details. Neither opens a device, so a launcher may call every function here.

`devices` lists the cards by the number that `devices=[...]` takes. It lists a device that no source reports as
"Operational" as well, without a number, and nothing counts it. HABANA_VISIBLE_MODULES limits what is numbered and
counted, not what is listed.
"""

from collections.abc import Sequence

from packaging.version import Version

from hpu_core import bridge
from hpu_core.discovery import _parse_devices, _synapse, _visible_modules
from hpu_core.discovery._bridge import import_torch
from hpu_core.discovery._device import HPUDevice, SourceResult, printable
from hpu_core.discovery._generation import Generation
from hpu_core.discovery._scan import ScanResult, scan
from hpu_core.discovery._synapse import SynapseVersion, driver_release
from hpu_core.discovery._visible_modules import VisibleModulesError, visible_modules_text
from hpu_core.install_hints import install_command

__all__ = [
    "Generation",
    "HPUDevice",
    "NoHPUError",
    "ScanResult",
    "SourceResult",
    "SynapseVersion",
    "VisibleModulesError",
    "auto_device_count",
    "check_devices",
    "device_count",
    "device_name",
    "devices",
    "driver_release",
    "import_torch",
    "is_available",
    "is_resetting",
    "parse_devices",
    "printable",
    "scan",
    "select_modules",
    "synapse_release",
    "synapse_version",
    "usable_modules",
    "visible_modules_text",
]


class NoHPUError(RuntimeError):
    """No Gaudi device can be used. The message lists the result of each source of discovery."""


def devices() -> tuple[HPUDevice, ...]:
    """Return every Gaudi device that is found, those that can be used first. Never raises.

    `devices()[i]` is the card that `Trainer(devices=[i])` opens, if its `index` is not None.
    """
    return scan().devices


def usable_modules(found: Sequence[HPUDevice] | None = None) -> tuple[int, ...]:
    """Return the module ids of the devices that this process may use, in the order of their indices.

    These are the operational devices that HABANA_VISIBLE_MODULES allows, in its order, or all operational devices in
    the order of their module ids. If module ids are unknown, they are taken to be those of the variable, or 0, 1 and so
    on, as the bridge does.

    Args:
        found: The devices of this machine; None for a new scan.

    Raises:
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid, or has a module that this machine does not have.
    """
    # hpu-doctor verify: rank-selects-module
    allowed = _visible_modules.from_environment()
    return _visible_modules.usable(devices() if found is None else found, allowed)


def device_count() -> int:
    """Return the number of devices that this process may use: operational and allowed by HABANA_VISIBLE_MODULES.

    Raises:
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    return len(usable_modules())


def auto_device_count() -> int:
    """Return the number of devices for `devices="auto"`: all that this process may use.

    Raises:
        NoHPUError: There is none.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    result = scan()
    count = len(usable_modules(result.devices))
    if count == 0:
        raise _no_device_error(result)
    return count


def is_available() -> bool:
    """Return whether a device can be used. Never raises.

    An invalid HABANA_VISIBLE_MODULES counts as unset here: returning False would make `accelerator="auto"` train on the
    CPU silently, while `device_count` and `parse_devices`, which run next, raise an error that names the variable.
    """
    found = devices()
    try:
        return bool(usable_modules(found))
    except VisibleModulesError:
        return any(device.is_operational for device in found)


def is_resetting() -> bool:
    """Return whether the driver is resetting a device, after which it can be used again."""
    return any(device.status.startswith("In reset") for device in devices())


def device_name() -> Generation | None:
    """Return the generation of the first operational device: "GAUDI", "GAUDI2" or "GAUDI3"; None if it is unknown.

    Unlike the bridge's `get_device_name`, this opens no device.
    """
    return next((device.generation for device in devices() if device.is_operational), None)


def synapse_release(found: Sequence[HPUDevice] | None = None) -> SynapseVersion | None:
    """Return the installed SynapseAI release and its source, None if it is unknown. Never raises.

    The first of these that is known:

    1. The version of the distribution habana-torch-plugin, which is the bridge that training uses.
    2. The driver version, if all devices report the same. In a container the driver is the host's and may be of another
       release.

    Args:
        found: The devices of this machine; None for a new scan.
    """
    return _synapse.find(bridge.plugin_version(), devices() if found is None else found)


def synapse_version() -> Version | None:
    """Return the version of `synapse_release`, such as 1.24.1.482; None if it is unknown. Never raises."""
    release = synapse_release()
    return release.version if release else None


def parse_devices(devices: object) -> int:
    """Return the number of devices for the `devices` argument of a Trainer or Fabric.

    A positive int, also as text, is that number. "auto" and -1 are all devices that can be used. For a list of indices,
    such as [1], "1," or "0,1", it is their number; `select_modules` returns which they are.

    Raises:
        TypeError: `devices` is None, a bool, a float or of another type that Lightning rejects, too.
        ValueError: `devices` is an invalid value, such as 0, "two" or [1, 1]. `check_devices` checks whether there are
            so many devices.
        NoHPUError: `devices` is "auto" or -1, and there is no device.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    number = _parse_devices.parse(devices)
    return auto_device_count() if number is None else number


def select_modules(devices: object) -> tuple[int, ...] | None:
    """Return the module ids of the devices that `devices` lists; None for those that the bridge opens by itself.

    A number of devices are the first ones of `usable_modules`. The bridge opens the same, unless a module is missing or
    not operational.

    An index counts the devices that can be used, in the order of `usable_modules`; `devices()` and `hpu-info` list them
    by it. hl-smi numbers cards by another order, which no other source knows and which a driver may change.

    Raises:
        TypeError: An entry of the list is not an int.
        ValueError: The list is invalid, or has an index without a device.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    indices = _parse_devices.parse_indices(devices)
    number = _parse_devices.parse(devices) if indices is None else None
    # One process opens any free card.
    found = scan().devices if number != 1 else ()
    if not found:
        return None
    modules = usable_modules(found)
    if indices is None:
        chosen = modules[:number]
        is_default = chosen == tuple(range(len(chosen))) or visible_modules_text() is not None
        return None if is_default else chosen
    if max(indices) >= len(modules):
        raise ValueError(
            f"`devices` must list cards from 0 to {len(modules) - 1}, the ones that can be used here, got {devices!r}"
        )
    return tuple(modules[index] for index in indices)


def check_devices(number: int) -> None:
    """Check that this machine has `number` usable devices, before that many processes are started.

    Where discovery finds no device at all, it accepts any number.

    Raises:
        ValueError: There are fewer.
        VisibleModulesError: HABANA_VISIBLE_MODULES is invalid.
    """
    available = device_count()
    if available and number > available:
        modules = visible_modules_text()
        limit = "" if modules is None else f" with {_visible_modules.VARIABLE}={modules!r}"
        raise ValueError(
            f"`devices` must be at most {available}, the number of cards that can be used here{limit}, got {number}"
        )


def _no_device_error(result: ScanResult) -> NoHPUError:
    sources = "".join(f"\n- {source.location}: {source.message}" for source in result.sources)
    if result.devices:
        states = ", ".join(f"{device.pci_address or device.module_id}: {device.status}" for device in result.devices)
        message = f"none of the {len(result.devices)} Gaudi cards found can be used ({states})"
        hint = "Reset the cards or reload their driver; `dmesg` has the driver's log."
    else:
        message = "no Gaudi card was found"
        hint = (
            "On a machine with cards, check that the driver is loaded and that this container was given cards "
            f"(HABANA_VISIBLE_DEVICES). To run without a card, `{install_command('hpu-sim')}` and start the program "
            "with `hpu-sim run`."
        )
    return NoHPUError(f"{message}. Searched:{sources}\n{hint}")
