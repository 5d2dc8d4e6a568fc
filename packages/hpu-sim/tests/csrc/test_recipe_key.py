"""Recipe keys: operator calls that share a recipe and calls that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch import core as htcore
from torch.nn import functional

from hpu_sim.device.counters import lifetime_stats
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _square() -> torch.Tensor:
    return torch.ones(6, 6).to("hpu")


# Pairs of graphs with the same operators that a card compiles separately.
_DIFFERENT: Final[dict[str, tuple[Callable[[], object], Callable[[], object]]]] = {
    "dimension": (lambda: _square().sum(0), lambda: _square().sum(1)),
    "padding": (
        lambda: functional.conv1d(_square()[None], torch.ones(6, 6, 3).to("hpu"), padding=0),
        lambda: functional.conv1d(_square()[None], torch.ones(6, 6, 3).to("hpu"), padding=1),
    ),
    "probability": (
        lambda: torch.native_dropout(_square(), 0.25, train=True),
        lambda: torch.native_dropout(_square(), 0.5, train=True),
    ),
    "layout": (lambda: torch.mm(_square(), _square()), lambda: torch.mm(_square().t(), _square())),
    "view": (lambda: torch.sinh(_square()[0]), lambda: torch.sinh(_square()[1])),
    "base of a view": (lambda: torch.cosh(_square()[0]), lambda: torch.cosh(torch.ones(7, 6).to("hpu")[0])),
    "optional argument": (lambda: _square().clamp(min=0), lambda: _square().clamp(max=0)),
    "boolean argument": (lambda: _square().cumsum(0).var(0, correction=0, keepdim=True), lambda: _square().var(0)),
    "string argument": (
        lambda: torch.div(_square(), _square(), rounding_mode="floor"),
        lambda: torch.div(_square(), _square(), rounding_mode="trunc"),
    ),
    "end of a range": (lambda: torch.arange(0, 5, device="hpu"), lambda: torch.arange(0, 6, device="hpu")),
    "dtype of the result": (
        lambda: _square().sum(0, dtype=torch.float32),
        lambda: _square().sum(0, dtype=torch.bfloat16),
    ),
    "dtype and size": (
        lambda: torch.sinh(torch.ones(20, dtype=torch.bfloat16).to("hpu")),
        lambda: torch.sinh(torch.ones(11).to("hpu")),
    ),
    "dimension and none": (lambda: _square().argmax(), lambda: _square().argmax(1)),
    "dtype of a copy": (lambda: _square().to(torch.bfloat16), lambda: _square().to(torch.int32)),
}

# Pairs of graphs that share a recipe.
_SAME: Final[dict[str, tuple[Callable[[], object], Callable[[], object]]]] = {
    "factor": (lambda: _square().mul_(0.5), lambda: _square().mul_(0.25)),
    "alpha": (lambda: _square().add_(_square(), alpha=0.1), lambda: _square().add_(_square(), alpha=0.2)),
    "scalars of a list": (
        lambda: torch._foreach_addcdiv_([_square()], [_square()], [_square()], [0.1]),
        lambda: torch._foreach_addcdiv_([_square()], [_square()], [_square()], [0.2]),
    ),
    "fill value": (lambda: _square().fill_(1), lambda: _square().fill_(2)),
    "values": (lambda: torch.exp(_square()), lambda: torch.exp(torch.zeros(6, 6).to("hpu"))),
    "random state": (lambda: _square().bernoulli_(0.5), lambda: _square().bernoulli_(0.5)),
}


@pytest.fixture
def compilations() -> Callable[[Callable[[], object]], int]:
    """Return a function that records and ends a graph and returns the number of its compilations."""
    htcore.mark_step()

    def record(graph: Callable[[], object]) -> int:
        before = lifetime_stats()["compilations"]
        graph()
        htcore.mark_step()
        return lifetime_stats()["compilations"] - before

    return record


@pytest.mark.parametrize("name", _DIFFERENT)
def test_graphs_that_differ_in_an_argument_have_a_recipe_each(
    name: str, compilations: Callable[[Callable[[], object]], int]
) -> None:
    first, second = _DIFFERENT[name]
    compilations(first)

    assert compilations(second) == 1
    assert [compilations(each) for each in (first, second)] == [0, 0]


@pytest.mark.parametrize("name", _SAME)
def test_graphs_that_differ_in_data_share_a_recipe(
    name: str, compilations: Callable[[Callable[[], object]], int]
) -> None:
    first, second = _SAME[name]
    compilations(first)

    assert compilations(second) == 0


@pytest.fixture
def cache_misses() -> Iterator[list[tuple[str, str]]]:
    """Return the operator and the arguments of each recipe cache miss."""
    htcore.mark_step()
    misses: list[tuple[str, str]] = []

    def listen(kind: str, op: str, detail: str, *_: object) -> None:
        if kind == "cache_miss":
            misses.append((op, detail))

    native().set_listener(listen)
    yield misses
    native().set_listener(None)


def test_a_recipe_cache_miss_shows_the_old_and_the_new_arguments(cache_misses: list[tuple[str, str]]) -> None:
    for dim in (0, 1):
        torch.ones(2, 9).to("hpu").t().amax(dim)
        htcore.mark_step()

    before, after = "Float[9, 2] stride[1, 9], dim=[0]", "Float[9, 2] stride[1, 9], dim=[1]"
    assert cache_misses[-1] == ("aten::amax", f"{before} -> {after}")


def test_a_recipe_cache_miss_of_a_copy_shows_its_strides(cache_misses: list[tuple[str, str]]) -> None:
    x, y = torch.ones(2, 9).to("hpu"), torch.ones(9, 2).to("hpu")
    htcore.mark_step()
    for source in (y.view(2, 9), y.t()):
        x.copy_(source)
        htcore.mark_step()

    tensor = "Float[2, 9]"
    assert cache_misses[-1] == ("aten::copy_", f"{tensor}, {tensor} -> {tensor}, {tensor} stride[1, 2]")
