"""The sources are asked in their order, and their answers put together without inventing anything."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hpu_core.discovery import Finding, HPUDevice
from hpu_core.discovery._device import Source
from hpu_core.discovery._survey import Sources, Survey, survey

_GIB = 1024**3


def _card(source: Source, index: int = 0, **fields: Any) -> HPUDevice:
    """A working card, whose address follows from its index."""
    known = {"pci_address": f"0000:{index:02}:00.0", "status": "Operational"}
    return HPUDevice(index=index, source=source, **{**known, **fields})


def _source(name: Source, *devices: HPUDevice) -> Callable[[], Finding]:
    return lambda: Finding(source=name, place=name, found="", devices=devices)


def _must_not_be_asked() -> Finding:
    pytest.fail("a source was asked that is not needed")


def _survey(**sources: Callable[[], Finding]) -> Survey:
    """Ask the sources given; the others find nothing."""
    nothing = {
        "bridge": _source("bridge"),
        "pyhlml": _source("pyhlml"),
        "sysfs": _source("sysfs"),
        "hl_smi": _source("hl-smi"),
    }
    return survey(Sources(**{**nothing, **sources}))


def test_nothing_anywhere() -> None:
    """Without a card every source has been asked, in its order."""
    found = _survey()

    assert found.devices == ()
    assert [finding.source for finding in found.findings] == ["bridge", "pyhlml", "sysfs", "hl-smi"]


def test_simulated_cards_are_alone() -> None:
    """Beside simulated cards nothing is asked, so that no real card lends them its details."""
    card = _card("bridge", simulated=True)
    found = _survey(
        bridge=_source("bridge", card),
        pyhlml=_must_not_be_asked,
        sysfs=_must_not_be_asked,
        hl_smi=_must_not_be_asked,
    )

    assert found.devices == (card,)


def test_the_bridge_decides_how_many() -> None:
    """A bridge that counts other cards than sysfs lists is believed, and takes no detail from it."""
    counted = _card("bridge", pci_address=None, generation="GAUDI2")
    found = _survey(bridge=_source("bridge", counted), sysfs=_source("sysfs", _card("sysfs", 0), _card("sysfs", 1)))

    assert found.devices == (counted,)


def test_the_bridge_takes_details_of_the_same_cards() -> None:
    """When both know as many cards, those of the bridge have the details that sysfs tells."""
    described = _card("sysfs", 0, module_id=3, generation="GAUDI2")
    found = _survey(
        bridge=_source("bridge", _card("bridge", pci_address=None, generation="GAUDI2")),
        sysfs=_source("sysfs", described),
        hl_smi=_must_not_be_asked,
    )

    assert found.devices == (dataclasses.replace(described, source="bridge"),)


def test_the_bridge_counts_the_operational_cards() -> None:
    """A card in reset that the bridge does not count is listed from sysfs."""
    found = _survey(
        bridge=_source("bridge", _card("bridge", pci_address=None)),
        sysfs=_source("sysfs", _card("sysfs", 0), _card("sysfs", 1, status="In reset")),
    )

    assert [device.status for device in found.devices] == ["Operational", "In reset"]


def test_the_bridge_takes_no_details_of_another_generation() -> None:
    """Cards of another generation than the bridge's cannot be the same cards."""
    counted = _card("bridge", pci_address=None, generation="GAUDI2")
    found = _survey(bridge=_source("bridge", counted), sysfs=_source("sysfs", _card("sysfs", generation="GAUDI3")))

    assert found.devices == (counted,)


def test_a_bridge_without_cards_falls_through() -> None:
    """A bridge that sees nothing does not hide what sysfs sees."""
    assert _survey(sysfs=_source("sysfs", _card("sysfs"))).devices == (_card("sysfs"),)


def test_pyhlml_comes_before_sysfs() -> None:
    """The cards are those of the first source that lists any, and sysfs fills in what it does not tell."""
    found = _survey(
        pyhlml=_source("pyhlml", _card("pyhlml", 1, memory_bytes=_GIB, memory_source="reported")),
        sysfs=_source(
            "sysfs",
            _card("sysfs", 0),
            _card("sysfs", 1, module_id=5, memory_bytes=2 * _GIB, memory_source="generation", driver_version="1.24.1"),
        ),
        hl_smi=_must_not_be_asked,
    )

    assert found.devices == (
        _card("pyhlml", 1, module_id=5, memory_bytes=_GIB, memory_source="reported", driver_version="1.24.1"),
    )


def test_a_tool_fills_in_reported_memory() -> None:
    """A size that a tool reports replaces the one that follows from the generation."""
    found = _survey(
        sysfs=_source("sysfs", _card("sysfs", status="Unknown", memory_bytes=_GIB, memory_source="generation")),
        hl_smi=_source("hl-smi", _card("hl-smi", memory_bytes=2 * _GIB, memory_source="reported")),
    )

    assert [(device.memory_bytes, device.memory_source) for device in found.devices] == [(2 * _GIB, "reported")]


def test_a_missing_status_is_asked_of_hl_smi() -> None:
    """When nobody has told a card's status, hl-smi is asked for it."""
    found = _survey(
        pyhlml=_source("pyhlml", _card("pyhlml", status="Unknown")), hl_smi=_source("hl-smi", _card("hl-smi"))
    )

    assert found.devices == (_card("pyhlml"),)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("Operational", "In reset", "In reset"),
        ("Malfunction", "Operational", "Malfunction"),
        ("Malfunction", "In reset", "Malfunction"),
        ("Unknown", "In reset", "In reset"),
        ("Unknown", "Operational", "Operational"),
        ("Operational", "Unknown", "Operational"),
        ("Unknown", "Unknown", "Unknown"),
    ],
)
def test_the_worse_status_counts(first: str, second: str, expected: str) -> None:
    """A card that one source calls unfit is not operational, whatever the other says."""
    found = _survey(
        pyhlml=_source("pyhlml", _card("pyhlml", status=first)), sysfs=_source("sysfs", _card("sysfs", status=second))
    )

    assert [device.status for device in found.devices] == [expected]


def test_cards_without_an_address_are_not_mixed_up() -> None:
    """Where no address tells that two sources mean the same card, nothing is filled in."""
    found = _survey(
        pyhlml=_source("pyhlml", _card("pyhlml", pci_address=None)),
        sysfs=_source("sysfs", _card("sysfs", pci_address=None, module_id=5)),
    )

    assert [device.module_id for device in found.devices] == [None]


def _fail() -> Finding:
    raise OSError("gone")


@pytest.mark.parametrize("name", ["bridge", "pyhlml", "sysfs"])
def test_a_source_that_fails(name: str) -> None:
    """A source that raises keeps none of the others from answering."""
    found = _survey(**{name: _fail, "hl_smi": _source("hl-smi", _card("hl-smi"))})

    assert found.devices == (_card("hl-smi"),)


def test_a_failure_is_told() -> None:
    """What a source raised stands in its finding."""
    assert [finding.found for finding in _survey(hl_smi=_fail).findings] == ["", "", "", "it failed: OSError: gone"]
