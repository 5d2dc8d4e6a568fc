"""Cards are counted as HABANA_VISIBLE_MODULES allows, and their absence is explained."""

from collections.abc import Sequence

import pytest

from hpu_core.discovery import Finding, HPUDevice, NoHPUError, Survey, VisibleModulesError
from hpu_core.discovery._counting import no_card_error, usable_count


def _cards(*module_ids: int | None, broken: Sequence[int] = ()) -> tuple[HPUDevice, ...]:
    """Cards with these module ids, those at the places `broken` being in reset."""
    return tuple(
        HPUDevice(
            index=index,
            module_id=module_id,
            status="In reset" if index in broken else "Operational",
            source="sysfs",
        )
        for index, module_id in enumerate(module_ids)
    )


def test_every_operational_card() -> None:
    """Without the variable, the operational cards count and no others."""
    assert usable_count(_cards(0, 1, 2, broken=[1]), None) == 2


def test_an_unknown_status_does_not_count() -> None:
    """A card of which nobody says that it works is no card to train on."""
    assert usable_count([HPUDevice(index=0, source="hl-smi")], None) == 0


def test_allowed_modules() -> None:
    """With the variable, only the modules that it names count, and of them only operational cards."""
    assert usable_count(_cards(3, 7, 2, 1, broken=[1]), [7, 2, 3]) == 2


def test_unknown_module_ids() -> None:
    """Where nobody tells module ids, no more cards count than the variable has entries."""
    assert usable_count(_cards(None, None, None), [4, 5]) == 2


def test_unknown_module_ids_of_fewer_cards() -> None:
    """Where nobody tells module ids, a list that is longer than there are cards adds none."""
    assert usable_count(_cards(None), [4, 5]) == 1


def test_an_absent_module() -> None:
    """A module that no card has is refused, since the process that gets it would fail."""
    with pytest.raises(VisibleModulesError, match="names module 9, which no card of this machine has"):
        usable_count(_cards(0, 1), [0, 9])


def test_no_cards() -> None:
    """On a machine without cards the variable has nothing to contradict."""
    assert usable_count((), [0, 1]) == 0


def test_error_without_cards() -> None:
    """The error lists each place and what was there."""
    findings = (
        Finding(source="sysfs", place="/sys/class/accel", found="0 of 1 devices are of PCI vendor 0x1da3"),
        Finding(source="hl-smi", place="the command hl-smi", found="it is not on PATH"),
    )
    text = str(no_card_error(Survey(devices=(), findings=findings)))

    assert text.startswith("no Gaudi card was found. Looked at:\n")
    assert "\n- /sys/class/accel: 0 of 1 devices are of PCI vendor 0x1da3\n" in text
    assert "\n- the command hl-smi: it is not on PATH\n" in text


def test_error_without_an_operational_card() -> None:
    """The error says of each card why it does not count."""
    text = str(no_card_error(Survey(devices=_cards(0, 1, broken=[0, 1]))))

    assert text.startswith("none of the 2 Gaudi cards found can be used (0: In reset, 1: In reset)")


def test_the_error_is_a_runtime_error() -> None:
    """Who does not know this package catches it as what it is."""
    assert issubclass(NoHPUError, RuntimeError)
