"""Asks the sources, in their order, and puts their answers together."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hpu_core.discovery import _bridge, _hl_smi, _pyhlml, _sysfs
from hpu_core.discovery._device import OPERATIONAL, UNKNOWN_STATUS, Finding, HPUDevice, Source, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of discovery. Each looks when it is called, and is called only when it is needed."""

    bridge: Callable[[], Finding] = _bridge.find
    pyhlml: Callable[[], Finding] = _pyhlml.find
    sysfs: Callable[[], Finding] = _sysfs.find
    hl_smi: Callable[[], Finding] = _hl_smi.find


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the sources that were asked know together.

    Attributes:
        devices: Every card, usable or not.
        findings: What each source that was asked answered, in the order of asking.
    """

    devices: tuple[HPUDevice, ...]
    findings: tuple[Finding, ...] = field(default=())


def survey(sources: Sources) -> Survey:
    """Look for cards. Never raises: a source that fails has found nothing, and its finding says so.

    The first source that lists a card decides which cards there are: a loaded bridge, pyhlml, sysfs, hl-smi. The
    sources after it fill in what it does not tell, and hl-smi, which costs a process, is asked only when no other
    lists a card or when nobody tells a card's status.
    """
    bridge = _ask("bridge", sources.bridge)
    if any(device.simulated for device in bridge.devices):
        # Nothing of the cards that this machine may have besides belongs to the simulated ones.
        return Survey(devices=bridge.devices, findings=(bridge,))
    findings = [bridge, _ask("pyhlml", sources.pyhlml), _ask("sysfs", sources.sysfs)]
    devices = _combine(findings[1:])
    if bridge.devices:
        return Survey(devices=_same_cards(bridge.devices, devices) or bridge.devices, findings=tuple(findings))
    if not devices or any(device.status == UNKNOWN_STATUS for device in devices):
        findings.append(_ask("hl-smi", sources.hl_smi))
        devices = _combine(findings[1:])
    return Survey(devices=devices, findings=tuple(findings))


def _ask(name: Source, source: Callable[[], Finding]) -> Finding:
    try:
        return source()
    except Exception as error:  # noqa: BLE001 - discovery answers on broken machines too, and says what is broken.
        return Finding(source=name, place=name, found=printable(f"it failed: {type(error).__name__}: {error}"))


def _combine(findings: Sequence[Finding]) -> tuple[HPUDevice, ...]:
    """Return the cards of the first finding that has any, with the details that later ones add by PCI address."""
    listing = next((finding for finding in findings if finding.devices), None)
    if listing is None:
        return ()
    devices = list(listing.devices)
    for finding in findings[findings.index(listing) + 1 :]:
        others = {device.pci_address: device for device in finding.devices}
        devices = [
            _filled(device, others.get(device.pci_address)) if device.pci_address else device for device in devices
        ]
    return tuple(devices)


def _filled(device: HPUDevice, other: HPUDevice | None) -> HPUDevice:
    """Fill what `device` does not tell from `other`, another source's words about the same card.

    Only a status is more than filled: a card that either of the two calls unfit is not operational.
    """
    if other is None:
        return device
    memory = other if device.memory_source != "reported" and other.memory_bytes is not None else device
    return dataclasses.replace(
        device,
        module_id=other.module_id if device.module_id is None else device.module_id,
        generation=device.generation or other.generation,
        memory_bytes=memory.memory_bytes,
        memory_source=memory.memory_source,
        status=_worse(device.status, other.status),
        driver_version=device.driver_version or other.driver_version,
    )


def _worse(first: str, second: str) -> str:
    """Return the status that says most against a card: unfit, then operational, then nothing said at all."""
    unfit = [status for status in (first, second) if status not in {OPERATIONAL, UNKNOWN_STATUS}]
    if unfit:
        return unfit[0]
    return OPERATIONAL if OPERATIONAL in {first, second} else UNKNOWN_STATUS


def _same_cards(counted: Sequence[HPUDevice], described: Sequence[HPUDevice]) -> tuple[HPUDevice, ...]:
    """Return `described` as the bridge's cards if both are about the same cards, as far as can be told; else none.

    They are when the bridge counts every card described or every operational one, and calls them of their generation.
    """
    operational = sum(device.is_operational for device in described)
    generations = {device.generation for device in (*counted, *described)} - {None}
    if len(counted) not in {len(described), operational} or len(generations) > 1:
        return ()
    return tuple(dataclasses.replace(device, source="bridge") for device in described)
