"""Random numbers of `torch.hpu`, and torch's own functions that the bridge patches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from habana_frameworks.torch import hpu


@pytest.mark.parametrize(("name", "arguments"), [("get_rng_state", (1,)), ("set_rng_state", (torch.ones(1), "hpu:1"))])
def test_the_state_of_another_device_is_the_bridges_error(name: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(RuntimeError, match=rf"^hpu {name} supports only device 0$"):
        getattr(hpu, name)(*arguments)


def test_functions_of_the_device_seed_its_generator() -> None:
    generator = hpu.manual_seed(5)
    assert (generator.device.type, hpu.initial_seed()) == ("hpu", 5)
    seed = hpu.seed()
    assert hpu.initial_seed() == seed != hpu.seed()
    assert hpu.manual_seed_all(6) is None
    assert hpu.initial_seed() == 6
    assert hpu.seed_all() is None
    assert hpu.initial_seed() != 6


def test_functions_of_torch_seed_the_cpu_and_the_device() -> None:
    for seed, function in ((7, torch.manual_seed), (8, torch.random.manual_seed)):
        assert function(seed).device.type == "cpu"
        assert (torch.initial_seed(), hpu.initial_seed()) == (seed, seed)
    assert torch.seed() == torch.initial_seed() == hpu.initial_seed()


def test_a_state_is_a_byte_tensor_on_the_cpu() -> None:
    """The list of all states has one."""
    (state,) = states = hpu.get_rng_state_all()
    drawn = torch.rand(3, device="hpu")

    assert (state.dtype, state.device.type, state.shape) == (torch.uint8, "cpu", torch.get_rng_state().shape)
    assert hpu.set_rng_state_all(states) is None
    devices = ("hpu", "hpu:0", 0, torch.device("hpu"))
    assert all(torch.equal(hpu.get_rng_state(device), state) for device in devices)
    assert torch.equal(torch.rand(3, device="hpu"), drawn)


@pytest.mark.parametrize(
    ("options", "restores_cpu", "restores_card"),
    [({}, True, True), ({"devices": []}, True, False), ({"enabled": False}, False, False)],
)
def test_fork_rng_restores_the_cpu_and_the_device(
    options: dict[str, Any], restores_cpu: bool, restores_card: bool
) -> None:
    host, card = torch.get_rng_state(), hpu.get_rng_state()

    with torch.random.fork_rng(**options):
        torch.rand(3)
        torch.rand(3, device="hpu")

    assert torch.equal(torch.get_rng_state(), host) is restores_cpu
    assert torch.equal(hpu.get_rng_state(), card) is restores_card
