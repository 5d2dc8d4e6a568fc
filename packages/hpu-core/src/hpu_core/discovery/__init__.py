"""Finds the Gaudi cards of this machine without opening one.

Sources, in order: the bridge, once this process has loaded it; pyhlml; sysfs; `hl-smi`. The first that lists a card
decides which cards there are, and the later ones fill in what it does not tell. None of them takes a card, so a
launcher may call everything here.

A card that no source calls "Operational" is listed by `devices` and never counted. HABANA_VISIBLE_MODULES limits what
is counted, not what is listed.
"""

from packaging.version import Version

from hpu_core import bridge
from hpu_core.discovery import _parse_devices, _visible_modules
from hpu_core.discovery._counting import NoHPUError, no_card_error, usable_count
from hpu_core.discovery._device import Finding, HPUDevice
from hpu_core.discovery._generation import Generation
from hpu_core.discovery._survey import Sources, Survey
from hpu_core.discovery._survey import survey as _survey
from hpu_core.discovery._synapse import synapse_release
from hpu_core.discovery._visible_modules import VisibleModulesError

__all__ = [
    "Finding",
    "Generation",
    "HPUDevice",
    "NoHPUError",
    "Survey",
    "VisibleModulesError",
    "auto_device_count",
    "check_devices",
    "device_count",
    "device_name",
    "devices",
    "is_available",
    "look",
    "parse_devices",
    "synapse_version",
]


def look() -> Survey:
    """Return every card with what each source answered, for messages and reports. Opens no card and never raises."""
    return _survey(Sources())


def devices() -> tuple[HPUDevice, ...]:
    """Return every Gaudi card that can be found, usable or not. Opens no card and never raises."""
    return look().devices


def device_count() -> int:
    """Return how many cards this process may use: operational, and allowed by HABANA_VISIBLE_MODULES. Opens no card.

    Returns:
        The number of cards, 0 where none is found.

    Raises:
        VisibleModulesError: HABANA_VISIBLE_MODULES has a value that cannot be honoured.
    """
    modules = _visible_modules.from_environment()
    return usable_count(devices(), modules)


def auto_device_count() -> int:
    """Return how many cards `devices="auto"` stands for: every one that this process may use. Opens no card.

    Raises:
        NoHPUError: There is none; the text lists every place looked at and what was found there.
        VisibleModulesError: HABANA_VISIBLE_MODULES has a value that cannot be honoured.
    """
    modules = _visible_modules.from_environment()
    found = look()
    count = usable_count(found.devices, modules)
    if count == 0:
        raise no_card_error(found)
    return count


def is_available() -> bool:
    """Tell whether a card can be used. Opens no card and never raises.

    Where HABANA_VISIBLE_MODULES cannot be honoured, this answers as if it were unset: a False would send a program that
    asks for any accelerator to the CPU without a word, while `device_count` and `parse_devices`, which every program
    calls next, raise the error that names the variable.
    """
    found = devices()
    try:
        return usable_count(found, _visible_modules.from_environment()) > 0
    except VisibleModulesError:
        return any(device.is_operational for device in found)


def device_name() -> Generation | None:
    """Return the generation of the cards, "GAUDI", "GAUDI2" or "GAUDI3". Opens no card, unlike the bridge's own call.

    Returns:
        The generation of the first operational card; None where there is none, or nobody tells its generation.
    """
    return next((device.generation for device in devices() if device.is_operational), None)


def synapse_version() -> Version | None:
    """Return the SynapseAI release installed here, such as 1.24.1.482. Opens no card and never raises.

    The first of these that tells it:

    1. The distribution habana-torch-plugin, which is the bridge that training will use.
    2. `hl-smi -v`, which belongs to the same user-space installation.
    3. The driver's version as the cards' sources report it, if all agree. It is the last because inside a container
       the driver is the host's and may be of another release.

    Returns:
        The release, with the build where it is told; None where nothing tells it.
    """
    release = synapse_release(bridge.plugin_version(), devices())
    return release.version if release else None


def parse_devices(devices: object) -> int:
    """Return the number of cards that the `devices` argument of a Trainer or Fabric asks for. Opens no card.

    A positive int, also as text, is that number; "auto" and -1 are every card that can be used. The list
    [0, 1, ..., n-1] is n. Any other list is refused, because no Gaudi process picks its card by an index: it gets one
    by HABANA_VISIBLE_MODULES and its local rank.

    Args:
        devices: The user's value.

    Raises:
        TypeError: `devices` is None, a bool, a float or of another type that never stands for cards.
        ValueError: `devices` is a value that never stands for cards, such as 0, "two" or [1, 3]. Whether there are so
            many cards is asked by `check_devices`.
        NoHPUError: `devices` asks for every card and there is none.
        VisibleModulesError: HABANA_VISIBLE_MODULES has a value that cannot be honoured.
    """
    return _parse_devices.parse(devices, every=auto_device_count)


def check_devices(number: int) -> None:
    """Refuse to start more processes on this machine than it has cards that can be used. Opens no card.

    Strategies for several cards call it before they launch anything. Where discovery finds no card at all it cannot
    tell, and accepts any number.

    Args:
        number: How many cards of this machine are asked for.

    Raises:
        ValueError: There are not so many; the text says how many there are.
        VisibleModulesError: HABANA_VISIBLE_MODULES has a value that cannot be honoured.
    """
    _parse_devices.check(number, present=device_count())
