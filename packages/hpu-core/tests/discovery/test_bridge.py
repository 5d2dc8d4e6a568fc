"""A loaded bridge is asked what it answers without opening a card."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hpu_core.discovery import HPUDevice, _bridge

_GIB = 1024**3


@dataclass
class _FakeBridge:
    """A bridge that answers what discovery asks, and nothing else: any other question is an AttributeError."""

    loaded: bool = True
    simulated: bool = False
    count: int = 2
    name: str = "GAUDI3"

    def is_loaded(self) -> bool:
        return self.loaded

    def is_simulated(self) -> bool:
        return self.simulated

    def device_count(self) -> int:
        return self.count

    def generation(self) -> str:
        return self.name


def test_cards_of_a_loaded_bridge() -> None:
    """Each card that the bridge counts is listed as operational, with what its generation tells."""
    assert _bridge.find(_FakeBridge()).devices == tuple(
        HPUDevice(
            index=index,
            generation="GAUDI3",
            memory_bytes=128 * _GIB,
            memory_source="generation",
            status="Operational",
            source="bridge",
        )
        for index in range(2)
    )


def test_simulated_cards() -> None:
    """The simulator's cards are called simulated, also in words."""
    finding = _bridge.find(_FakeBridge(simulated=True, count=1))

    assert [device.simulated for device in finding.devices] == [True]
    assert finding.found == "it counts 1 simulated card"


def test_a_bridge_that_is_not_loaded_is_asked_nothing() -> None:
    """Without a loaded bridge there is no card here, and nothing is loaded to change that."""
    finding = _bridge.find(_FakeBridge(loaded=False))

    assert (finding.devices, finding.found) == ((), "this process has not loaded it")


@pytest.mark.parametrize("count", [0, -1])
def test_a_bridge_without_cards(count: int) -> None:
    """A loaded bridge without cards lists none."""
    finding = _bridge.find(_FakeBridge(count=count))

    assert (finding.devices, finding.found) == ((), "it is loaded and sees no card")


def test_a_name_that_is_not_known() -> None:
    """A generation that is not known is not guessed, and the cards are still there."""
    assert [device.generation for device in _bridge.find(_FakeBridge(name="GAUDI4")).devices] == [None, None]


def test_a_bridge_that_cannot_tell_the_generation() -> None:
    """The generation comes from a private call of the bridge; without it, the cards are still there."""

    class Failing(_FakeBridge):
        def generation(self) -> str:
            raise AttributeError("_get_device_type")

    assert [device.generation for device in _bridge.find(Failing()).devices] == [None, None]


@pytest.fixture
def no_answer_yet() -> Iterator[None]:
    """Torch has not been tried before the test, nor has it been for the tests after it."""
    _bridge.import_torch.cache_clear()
    yield
    _bridge.import_torch.cache_clear()


@pytest.mark.usefixtures("no_answer_yet")
def test_torch_that_cannot_be_imported() -> None:
    """A torch that cannot be imported is tried once, and why it cannot is told each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        first = _bridge.import_torch()

    assert first is not None
    assert first.startswith("ModuleNotFoundError: ")
    assert _bridge.import_torch() == first


@pytest.mark.usefixtures("no_answer_yet")
def test_torch_that_is_there() -> None:
    """A torch that can be imported leaves nothing to tell."""
    assert _bridge.import_torch() is None
