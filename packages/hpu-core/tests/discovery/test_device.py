"""The facts about a card are immutable, and the helpers that read them accept only what they know."""

import dataclasses

import pytest

from hpu_core.discovery import Generation, HPUDevice, _device

_GIB = 1024**3


def test_a_device_is_frozen() -> None:
    """The facts about a card cannot be changed."""
    device = HPUDevice(index=0, source="sysfs")

    with pytest.raises(dataclasses.FrozenInstanceError):
        device.index = 1  # type: ignore[misc]  # Assigning is what the test is about.


def test_a_device_has_slots() -> None:
    """A card holds its fields and no dictionary."""
    assert not hasattr(HPUDevice(index=0, source="sysfs"), "__dict__")


@pytest.mark.parametrize(
    ("status", "expected"),
    [("Operational", True), ("In reset", False), ("Malfunction", False), ("Unknown", False)],
)
def test_only_an_operational_card_is_operational(status: str, expected: bool) -> None:
    """A card of which nobody says that it is operational is none."""
    assert HPUDevice(index=0, status=status, source="sysfs").is_operational is expected


@pytest.mark.parametrize(("generation", "gib"), [("GAUDI", 32), ("GAUDI2", 96), ("GAUDI3", 128)])
def test_memory_of_the_generation(generation: Generation, gib: int) -> None:
    """A card whose memory nobody reports has that of its generation, and says so."""
    device = _device.with_memory_of_generation(HPUDevice(index=0, generation=generation, source="sysfs"))

    assert (device.memory_bytes, device.memory_source) == (gib * _GIB, "generation")


def test_reported_memory_is_kept() -> None:
    """What a tool reported wins over what the generation has."""
    reported = HPUDevice(index=0, generation="GAUDI2", memory_bytes=5 * _GIB, memory_source="reported", source="pyhlml")

    assert _device.with_memory_of_generation(reported) == reported


def test_no_memory_for_an_unknown_generation() -> None:
    """Nothing is made up about a card whose generation nobody tells."""
    assert _device.with_memory_of_generation(HPUDevice(index=0, source="sysfs")).memory_bytes is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:43:00.0", "0000:43:00.0"),
        (" 0000:4A:00.0\n", "0000:4a:00.0"),
        ("43:00.0", "0000:43:00.0"),
        ("10000:43:00.0", "10000:43:00.0"),
        ("0000:43:00.8", None),
        ("0000:43:00", None),
        ("", None),
    ],
)
def test_pci_address(text: str, expected: str | None) -> None:
    """PCI addresses come in one form, whatever a tool writes, and nothing else passes for one."""
    assert _device.pci_address(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("7\n", 7), ("-1", None), ("", None), ("٣", None), ("9" * 5000, None)])
def test_small_number(text: str, expected: int | None) -> None:
    """Only short plain numbers are numbers."""
    assert _device.small_number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Operational\n", "Operational"), ("operational", "Operational"), ("In reset", "In reset"), ("  ", "Unknown")],
)
def test_status(text: str, expected: str) -> None:
    """The driver's word for a status is kept, in one spelling where it is the good one."""
    assert _device.status(text) == expected


def test_printable_shows_what_a_terminal_would_obey() -> None:
    """Control sequences and other scripts become question marks."""
    assert _device.printable("\x1b[31mred\x1b[0m ü\n") == "?[31mred?[0m ?"
