"""`torch.hpu`'s random number functions, and torch's own that the bridge replaces."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch import hpu


@pytest.mark.parametrize("device", ["hpu", "hpu:0", 0, torch.device("hpu")], ids=repr)
def test_the_state_is_bytes_on_the_host(device: object) -> None:
    """A checkpoint can hold it."""
    state = hpu.get_rng_state(device)

    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    assert state.shape == torch.get_rng_state().shape


def test_the_state_can_be_put_back() -> None:
    """And the same numbers are drawn again."""
    state = hpu.get_rng_state()
    drawn = torch.rand(3, device="hpu")

    assert hpu.set_rng_state(state) is None
    assert torch.equal(torch.rand(3, device="hpu"), drawn)


def test_the_states_of_all_cards_are_one() -> None:
    """In a list, which goes back as it came."""
    states = hpu.get_rng_state_all()
    drawn = torch.rand(3, device="hpu")

    assert len(states) == 1
    assert hpu.set_rng_state_all(states) is None
    assert torch.equal(torch.rand(3, device="hpu"), drawn)


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_states_is_the_bridges_error(count: int) -> None:
    """A process has one card."""
    with pytest.raises(RuntimeError, match=r"^hpu set_rng_state_all supports only states len of 1$"):
        hpu.set_rng_state_all([hpu.get_rng_state()] * count)


def test_reading_another_cards_state_is_the_bridges_error() -> None:
    """It names the function."""
    with pytest.raises(RuntimeError, match=r"^hpu get_rng_state supports only device 0$"):
        hpu.get_rng_state(1)


def test_setting_another_cards_state_is_the_bridges_error() -> None:
    """It names the function."""
    with pytest.raises(RuntimeError, match=r"^hpu set_rng_state supports only device 0$"):
        hpu.set_rng_state(hpu.get_rng_state(), "hpu:1")


def test_seeding_returns_the_generator() -> None:
    """It is the device's default one."""
    generator = hpu.manual_seed(5)

    assert isinstance(generator, torch.Generator)
    assert generator.device.type == "hpu"
    assert hpu.initial_seed() == 5


def test_seeding_all_cards_returns_nothing() -> None:
    """There is one to seed."""
    assert hpu.manual_seed_all(6) is None
    assert hpu.initial_seed() == 6


@pytest.mark.parametrize("name", ["seed", "seed_all"])
def test_a_seed_from_the_system_is_returned(name: str) -> None:
    """It is the initial seed afterwards, and another one each time."""
    seed = getattr(hpu, name)()

    assert hpu.initial_seed() == seed
    assert getattr(hpu, name)() != seed


def test_there_is_one_default_generator() -> None:
    """DeepSpeed indexes the list."""
    assert len(hpu.random.default_generators) == 1
    assert hpu.random.default_generators[0].device.type == "hpu"


def test_torch_manual_seed_seeds_both() -> None:
    """Host and card, under both of its names, and the host's generator is returned."""
    for seed, function in ((7, torch.manual_seed), (8, torch.random.manual_seed)):
        generator = function(seed)

        assert generator.device.type == "cpu"
        assert (torch.initial_seed(), hpu.initial_seed()) == (seed, seed)


def test_torch_seed_seeds_both() -> None:
    """With one seed from the system."""
    seed = torch.seed()

    assert torch.initial_seed() == hpu.initial_seed() == seed


def test_forking_random_numbers_puts_both_back() -> None:
    """`fork_rng` includes the card by default."""
    host, card = torch.get_rng_state(), hpu.get_rng_state()

    with torch.random.fork_rng():
        torch.manual_seed(9)
        torch.rand(3)
        torch.rand(3, device="hpu")

    assert torch.equal(torch.get_rng_state(), host)
    assert torch.equal(hpu.get_rng_state(), card)


def test_forking_random_numbers_can_leave_the_card_out() -> None:
    """With no devices only the host's are put back."""
    with torch.random.fork_rng(devices=[]):
        card = hpu.get_rng_state()
        torch.rand(3, device="hpu")

    assert not torch.equal(hpu.get_rng_state(), card)


def test_forking_can_be_switched_off() -> None:
    """As torch's own."""
    host = torch.get_rng_state()

    with torch.random.fork_rng(enabled=False):
        torch.rand(3)

    assert not torch.equal(torch.get_rng_state(), host)
