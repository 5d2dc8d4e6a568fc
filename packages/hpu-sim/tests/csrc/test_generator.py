"""Random numbers of the card are its own."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch import hpu
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

_NEEDS = pytest.mark.needs_torch("2.9", "generators in Python for this device")


def _attend(x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


# Operators that draw, with a generator of theirs or without one.
_DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "rand": lambda: torch.rand(20, device="hpu"),
    "rand_like": lambda: torch.rand_like(torch.ones(20, device="hpu")),
    "randn": lambda: torch.randn(20, device="hpu"),
    "randint": lambda: torch.randint(1000, (20,), device="hpu"),
    "randperm": lambda: torch.randperm(20, device="hpu"),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.5, device="hpu")),
    "multinomial": lambda: torch.multinomial(torch.ones(20, device="hpu"), 10),
    "normal": lambda: torch.normal(torch.zeros(20, device="hpu"), 1.0),
    "poisson": lambda: torch.poisson(torch.full((20,), 5.0, device="hpu")),
    "binomial": lambda: torch.binomial(torch.full((20,), 9.0, device="hpu"), torch.full((20,), 0.5, device="hpu")),
    "exponential_": lambda: torch.empty(20, device="hpu").exponential_(),
    "uniform_": lambda: torch.empty(20, device="hpu").uniform_(),
    "random_": lambda: torch.empty(20, device="hpu").random_(),
    "dropout": lambda: functional.dropout(torch.ones(40, device="hpu")),
    "native_dropout": lambda: torch.native_dropout(torch.ones(40, device="hpu"), 0.5, train=True)[0],
    "alpha_dropout": lambda: functional.alpha_dropout(torch.ones(40, device="hpu"), training=True),
    "dropout2d": lambda: functional.dropout2d(torch.ones(1, 40, 2, 2, device="hpu")),
    "rrelu": lambda: functional.rrelu(-torch.ones(20, device="hpu"), training=True),
    "gumbel_softmax": lambda: functional.gumbel_softmax(torch.zeros(20, device="hpu")),
    "attention dropout": lambda: _attend(torch.ones(1, 1, 8, 8, device="hpu")),
    "gamma": lambda: torch.distributions.Gamma(torch.ones(20, device="hpu"), torch.ones(20, device="hpu")).sample(),
    "initialisation": lambda: nn.init.kaiming_uniform_(torch.empty(4, 5, device="hpu")),
}


@pytest.fixture(params=_DRAWS)
def draw(request: pytest.FixtureRequest) -> Callable[[], torch.Tensor]:
    """Draws on the card."""
    return _DRAWS[request.param]


def test_the_seed_decides(draw: Callable[[], torch.Tensor]) -> None:
    """torch.manual_seed reaches the card, and each draw differs from the one before."""
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)

    assert not torch.equal(second, first)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)


def test_a_draw_moves_the_cards_generator_alone(draw: Callable[[], torch.Tensor]) -> None:
    """Its state can be put back, from which a checkpoint goes on. What the host draws does not depend on the card."""
    host, card = torch.get_rng_state(), hpu.get_rng_state()
    first = draw()

    assert torch.equal(torch.get_rng_state(), host)
    assert not torch.equal(hpu.get_rng_state(), card)
    hpu.set_rng_state(card)
    assert torch.equal(draw(), first)


def test_the_host_does_not_touch_the_cards_generator() -> None:
    """Nor the other way round."""
    before = hpu.get_rng_state()

    torch.rand(3)
    functional.dropout(torch.ones(3))

    assert torch.equal(hpu.get_rng_state(), before)


def test_another_thread_draws_from_the_hosts_generator_while_the_device_draws() -> None:
    """A seeded `torch.rand` on the CPU does not depend on a random operator that runs on the device meanwhile."""
    torch.default_generator.manual_seed(3)
    expected = torch.rand(4)
    big = torch.ones(1 << 18, device="hpu")
    device = threading.Thread(target=lambda: [torch.native_dropout(big, 0.5, train=True) for _ in range(20)])
    drawn = []

    device.start()
    while device.is_alive():
        torch.default_generator.manual_seed(3)
        drawn.append(torch.rand(4))

    assert drawn
    assert all(torch.equal(each, expected) for each in drawn)


@pytest.mark.parametrize(("p", "train"), [(0.25, True), (1.0, True), (0.5, None), (0.5, False)])
@pytest.mark.parametrize("size", [40, 0])
def test_dropout_equals_the_hosts(p: float, train: bool | None, size: int) -> None:
    """With the same seed, result and mask equal those of the CPU's operator."""
    torch.manual_seed(3)
    host = torch.native_dropout(torch.ones(size), p, train)
    torch.manual_seed(3)
    device = torch.native_dropout(torch.ones(size, device="hpu"), p, train)

    assert [each.dtype for each in device] == [each.dtype for each in host]
    assert all(torch.equal(mine.cpu(), theirs) for mine, theirs in zip(device, host, strict=True))


@pytest.fixture
def generator() -> torch.Generator:
    """A generator on the card with seed 7."""
    return torch.Generator(device="hpu").manual_seed(7)


_GENERATOR_DRAWS: dict[str, Callable[[Any], torch.Tensor]] = {
    "rand": lambda g: torch.rand(9, device="hpu", generator=g),
    "randint": lambda g: torch.randint(999, (9,), device="hpu", generator=g),
    "normal_": lambda g: torch.empty(9, device="hpu").normal_(generator=g),
}


@_NEEDS
@pytest.mark.parametrize("name", _GENERATOR_DRAWS)
def test_a_generator_decides_what_is_drawn_from_it(name: str, generator: torch.Generator) -> None:
    """The default generator has no part in it, and is not moved."""
    before = hpu.get_rng_state()
    first = _GENERATOR_DRAWS[name](generator)
    second = _GENERATOR_DRAWS[name](generator)
    generator.manual_seed(7)

    assert torch.equal(_GENERATOR_DRAWS[name](generator), first)
    assert not torch.equal(first, second)
    assert torch.equal(hpu.get_rng_state(), before)


@_NEEDS
def test_a_generators_state_can_be_put_back(generator: torch.Generator) -> None:
    """It is a tensor of bytes on the host."""
    state = generator.get_state()
    first = torch.rand(3, device="hpu", generator=generator)

    generator.set_state(state)

    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    assert torch.equal(torch.rand(3, device="hpu", generator=generator), first)


@_NEEDS
def test_a_generator_can_be_copied(generator: torch.Generator) -> None:
    """By pickling, as between processes and by `copy.deepcopy`; from where it is, not from its seed."""
    torch.rand(3, device="hpu", generator=generator)

    copied = copy.deepcopy(generator)

    assert copied.device == generator.device
    assert torch.equal(*(torch.rand(3, device="hpu", generator=each) for each in (copied, generator)))


@_NEEDS
def test_a_generator_draws_the_hosts_numbers() -> None:
    """Both are the same mt19937, as on the bridge: a run on the card can be compared with one on the host."""
    host = torch.rand(9, generator=torch.Generator().manual_seed(7))

    card = torch.rand(9, device="hpu", generator=torch.Generator(device="hpu").manual_seed(7))

    assert torch.equal(card.cpu(), host)


@_NEEDS
def test_a_seed_from_the_system_is_told(generator: torch.Generator) -> None:
    """It is what the generator was seeded with, and no constant."""
    assert (generator.device, generator.initial_seed()) == (torch.device("hpu:0"), 7)
    seed = generator.seed()

    assert generator.initial_seed() == seed
    assert generator.seed() != seed


@pytest.mark.usefixtures("pipelined")
def test_streams_draw_in_the_order_of_their_launches() -> None:
    """Whatever keeps one of them busy."""

    def draw(busy: hpu.Stream, idle: hpu.Stream) -> torch.Tensor:
        torch.manual_seed(0)
        big = torch.ones(400, 400, device="hpu")
        drawn = []
        for _ in range(5):
            with hpu.stream(busy):
                _ = big @ big
                drawn.append(torch.rand(4, device="hpu"))
            with hpu.stream(idle):
                drawn.append(torch.rand(4, device="hpu"))
        hpu.synchronize()
        return torch.stack(drawn).cpu()

    one = hpu.Stream()
    assert torch.equal(draw(hpu.Stream(), hpu.Stream()), draw(one, one))
