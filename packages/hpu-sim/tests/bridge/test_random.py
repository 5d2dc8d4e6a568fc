"""Random numbers of `torch.hpu`, and torch's own functions that the bridge patches."""

from __future__ import annotations

import pytest
import torch
from habana_frameworks.torch import hpu


@pytest.mark.parametrize("device", ["hpu", "hpu:0", 0, torch.device("hpu")], ids=repr)
def test_the_state_is_a_byte_tensor_on_the_cpu(device: object) -> None:
    state = hpu.get_rng_state(device)

    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    assert state.shape == torch.get_rng_state().shape


def test_the_list_of_all_states_has_one() -> None:
    states = hpu.get_rng_state_all()
    drawn = torch.rand(3, device="hpu")

    assert len(states) == 1
    assert hpu.set_rng_state_all(states) is None
    assert torch.equal(torch.rand(3, device="hpu"), drawn)


@pytest.mark.parametrize(("name", "arguments"), [("get_rng_state", (1,)), ("set_rng_state", (torch.ones(1), "hpu:1"))])
def test_the_state_of_another_device_is_the_bridges_error(name: str, arguments: tuple[object, ...]) -> None:
    """The error names the function."""
    with pytest.raises(RuntimeError, match=rf"^hpu {name} supports only device 0$"):
        getattr(hpu, name)(*arguments)


def test_manual_seed_returns_the_default_generator() -> None:
    generator = hpu.manual_seed(5)

    assert isinstance(generator, torch.Generator)
    assert generator.device.type == "hpu"
    assert hpu.initial_seed() == 5


def test_seed_returns_a_new_seed() -> None:
    """It is the initial seed afterwards."""
    seed = hpu.seed()

    assert hpu.initial_seed() == seed
    assert hpu.seed() != seed


def test_functions_for_all_devices_seed_and_return_none() -> None:
    assert hpu.manual_seed_all(6) is None
    assert hpu.initial_seed() == 6
    assert hpu.seed_all() is None
    assert hpu.initial_seed() != 6


def test_torch_manual_seed_seeds_both() -> None:
    """It seeds the CPU and the device, under both names, and returns the CPU's generator."""
    for seed, function in ((7, torch.manual_seed), (8, torch.random.manual_seed)):
        generator = function(seed)

        assert generator.device.type == "cpu"
        assert (torch.initial_seed(), hpu.initial_seed()) == (seed, seed)


def test_torch_seed_seeds_both() -> None:
    """Both get the same seed."""
    seed = torch.seed()

    assert torch.initial_seed() == hpu.initial_seed() == seed


def test_fork_rng_can_exclude_the_device() -> None:
    """An empty list of devices restores only the CPU's state."""
    with torch.random.fork_rng(devices=[]):
        card = hpu.get_rng_state()
        torch.rand(3, device="hpu")

    assert not torch.equal(hpu.get_rng_state(), card)


def test_fork_rng_can_be_disabled() -> None:
    host = torch.get_rng_state()

    with torch.random.fork_rng(enabled=False):
        torch.rand(3)

    assert not torch.equal(torch.get_rng_state(), host)
