"""How many cards this process may use, and the error that explains why there is none."""

from collections.abc import Sequence

from hpu_core.discovery import _visible_modules
from hpu_core.discovery._device import HPUDevice
from hpu_core.discovery._survey import Survey


class NoHPUError(RuntimeError):
    """No Gaudi card can be used; the text lists every place looked at and what was found there."""


def usable_count(devices: Sequence[HPUDevice], modules: Sequence[int] | None) -> int:
    """Count the operational cards that HABANA_VISIBLE_MODULES allows.

    Where no source tells the module ids, the length of the list is the only thing that can be honoured: no more
    processes can start than it has entries.

    Args:
        devices: The cards of this machine.
        modules: What `_visible_modules.from_environment` returned.

    Raises:
        VisibleModulesError: The list names a module that no card of this machine has.
    """
    operational = [device for device in devices if device.is_operational]
    if modules is None or not devices:
        return len(operational)
    ids = [device.module_id for device in devices if device.module_id is not None]
    if len(ids) < len(devices):
        return min(len(modules), len(operational))
    _visible_modules.check_present(modules, ids)
    return sum(device.module_id in modules for device in operational)


def no_card_error(found: Survey) -> NoHPUError:
    """Return the error for a survey without a usable card."""
    places = "".join(f"\n- {finding.place}: {finding.found}" for finding in found.findings)
    if found.devices:
        states = ", ".join(f"{device.pci_address or device.index}: {device.status}" for device in found.devices)
        what = f"none of the {len(found.devices)} Gaudi cards found can be used ({states})"
        todo = "Reset them or load their driver anew, or ask whoever runs the machine; a log of them is in `dmesg`."
    else:
        what = "no Gaudi card was found"
        todo = (
            "On a machine with cards, check that the driver is loaded and that this container was given cards "
            "(HABANA_VISIBLE_DEVICES). To run without one, `pip install hpu-sim` and start the program with "
            "`hpu-sim run`."
        )
    return NoHPUError(f"{what}. Looked at:{places}\n{todo}")
