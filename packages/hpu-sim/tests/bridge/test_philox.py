"""Philox states of random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.fixture
def _philox() -> Iterator[None]:
    hpu.set_rng_ctx("philox")
    yield
    hpu.unset_rng_ctx("philox")


def _words(state: torch.Tensor) -> list[int]:
    words: list[int] = state.cpu().view(torch.int64).tolist()
    return words


def _draw() -> list[float]:
    numbers: list[float] = torch.rand(4, device="hpu").tolist()
    return numbers


@pytest.mark.usefixtures("_philox")
def test_a_state_is_a_seed_and_an_offset() -> None:
    """It has sixteen bytes on the device. A new seed starts at offset zero."""
    hpu.set_rng_state(torch.tensor([5, 16]).view(torch.uint8))
    torch.manual_seed(1234)

    state = hpu.get_rng_state()

    assert (state.dtype, state.shape, state.device.type) == (torch.uint8, (16,), "hpu")
    assert _words(state) == [1234, 0]


@pytest.mark.usefixtures("_philox")
@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1, -1])
def test_a_state_comes_back_as_it_was_set(seed: int) -> None:
    """It may come from the CPU or the device. Drawing numbers does not advance it, because the caller counts."""
    state = torch.tensor([seed, 48]).view(torch.uint8)

    hpu.set_rng_state(state)
    _draw()

    assert _words(hpu.get_rng_state()) == [seed, 48]
    hpu.set_rng_state(state.to("hpu"))
    assert _words(hpu.get_rng_state()) == [seed, 48]


@pytest.mark.usefixtures("_philox")
def test_equal_offsets_give_equal_numbers() -> None:
    drawn = []
    for seed, offset in ((5, 0), (5, 4), (5, 0), (6, 0)):
        hpu.set_rng_state(torch.tensor([seed, offset]).view(torch.uint8))
        drawn.append(_draw())

    assert drawn[0] == drawn[2]
    assert drawn[0] != drawn[1]
    assert drawn[0] != drawn[3]


def test_outside_of_the_context_the_state_is_the_generators() -> None:
    hpu.set_rng_ctx("philox")
    hpu.unset_rng_ctx("philox")

    assert hpu.get_rng_state().device.type == "cpu"


@pytest.mark.parametrize("switch", ["set_rng_ctx", "unset_rng_ctx"])
def test_an_unknown_context_is_an_error(switch: str) -> None:
    with pytest.raises(ValueError, match="`ctx` must be 'philox', got 'mersenne'"):
        getattr(hpu, switch)("mersenne")


@pytest.mark.needs_torch("2.9", "random numbers of distributed tensors for this device")
def test_distributed_tensors_draw_random_numbers(output_of: Any) -> None:
    """Torch uses philox states for them: the same seed gives the same numbers."""
    program = """
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, rand
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    mesh = DeviceMesh("hpu", [0])
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(rand(4, 4, device_mesh=mesh, placements=[Shard(0)]).to_local().cpu())
    print(torch.equal(drawn[0], drawn[1]), torch.equal(drawn[0], drawn[2]))
    dist.destroy_process_group()
    """

    variables = {"HPU_SIM_DEVICES": "1", "LOCAL_RANK": "0", "PT_HPU_LAZY_MODE": "0"}
    assert output_of(program, **variables) == "True False"
