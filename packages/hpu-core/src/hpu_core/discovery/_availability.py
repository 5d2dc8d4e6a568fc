"""Number of devices that this process may use, and the error if there is none."""

from collections.abc import Sequence

from hpu_core.discovery import _visible_modules
from hpu_core.discovery._device import HPUDevice
from hpu_core.discovery._scan import ScanResult
from hpu_core.install_hints import install_command


class NoHPUError(RuntimeError):
    """No Gaudi device can be used. The message lists the result of each source of discovery."""


def usable_count(devices: Sequence[HPUDevice], modules: Sequence[int] | None) -> int:
    """Return the number of operational devices that HABANA_VISIBLE_MODULES allows.

    If module ids are unknown, only the length of the list applies: no more processes can start than it has entries.

    Args:
        devices: The devices of this machine.
        modules: Result of `_visible_modules.from_environment`.

    Raises:
        VisibleModulesError: The list has a module id that no device of this machine has.
    """
    operational = [device for device in devices if device.is_operational]
    if modules is None or not devices:
        return len(operational)
    ids = [device.module_id for device in devices if device.module_id is not None]
    if len(ids) < len(devices):
        return min(len(modules), len(operational))
    _visible_modules.check_present(modules, ids)
    return sum(device.module_id in modules for device in operational)


def usable_modules(devices: Sequence[HPUDevice], modules: Sequence[int] | None) -> list[int]:
    """Return the module ids of the devices that `usable_count` counts, in the order of their indices.

    If module ids are unknown, they are taken to be 0, 1 and so on, as the bridge does.

    Args:
        devices: The devices of this machine.
        modules: Result of `_visible_modules.from_environment`.

    Raises:
        VisibleModulesError: The list has a module id that no device of this machine has.
    """
    count = usable_count(devices, modules)
    operational = {device.module_id for device in devices if device.is_operational}
    if None in operational:
        return list(modules or range(count))[:count]
    ids = sorted(module for module in operational if module is not None)
    return ids if modules is None else [module for module in modules if module in ids]


def no_device_error(result: ScanResult) -> NoHPUError:
    """Return the error for a scan without a usable device."""
    sources = "".join(f"\n- {source.location}: {source.message}" for source in result.sources)
    if result.devices:
        states = ", ".join(f"{device.pci_address or device.index}: {device.status}" for device in result.devices)
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
