"""What the counters say, exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu
from torch.nn import functional

import hpu_sim
from hpu_sim.device import counters

if TYPE_CHECKING:
    from collections.abc import Callable

_GRAPHS: Final = ("graphs", "recompilations", "host_syncs")
_COPIES: Final = ("h2d_copies", "h2d_bytes", "d2h_copies", "d2h_bytes")


def _pick(counted: dict[str, int], names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(counted[name] for name in names)


def test_the_counters_are_these(statistics: Callable[[], dict[str, int]]) -> None:
    """The keys and their order never change."""
    counted = statistics()

    assert tuple(counted) == counters.STATS
    assert all(type(value) is int for value in counted.values())


def test_a_reset_zeroes_counters_and_keeps_memory_in_use() -> None:
    x = torch.ones(1000, device="hpu")
    x.sum().item()

    hpu_sim.reset_stats()

    counted = hpu_sim.stats()
    assert counted["allocated_bytes"] == counted["peak_bytes"] >= x.numel() * x.element_size()
    assert not any(value for name, value in counted.items() if name not in {"allocated_bytes", "peak_bytes"})


def _graph(size: int, dtype: torch.dtype = torch.float32) -> None:
    """Record and end a graph that no other test records."""
    torch.empty(size, dtype=dtype, device="hpu").sinh().tanh().sinh()
    htcore.mark_step()


def _graphs(*sizes: int) -> None:
    for size in sizes:
        _graph(size)


def _mark_after(*work: object) -> None:
    htcore.mark_step()


# What is done, and the graphs that it ends.
_STEPS: Final[dict[str, tuple[Callable[[], Any], int]]] = {
    "several operators are one graph": (lambda: _mark_after(((torch.ones(3, device="hpu") + 1) * 2).sum()), 1),
    "an empty graph is not counted": (lambda: (htcore.mark_step(), htcore.mark_step()), 0),
    "an open graph is not counted": (lambda: torch.ones(3, device="hpu").add_(1), 0),
    "a copy to the device opens no graph": (lambda: _mark_after(torch.ones(3).to("hpu")), 0),
    "a copy within the device is part of a graph": (
        lambda: _mark_after(torch.empty(3, device="hpu").copy_(torch.empty(3, device="hpu"))),
        1,
    ),
}


@pytest.mark.parametrize("step", _STEPS)
def test_graphs_of_a_step(step: str, statistics: Callable[[], dict[str, int]]) -> None:
    work, expected = _STEPS[step]

    work()

    assert statistics()["graphs"] == expected


# What is done after a graph of five elements: graphs, and recompilations of them.
_RECOMPILATIONS: Final[dict[str, tuple[Callable[[], Any], tuple[int, int]]]] = {
    # Its first compilation is unavoidable.
    "new operators": (lambda: _mark_after(torch.empty(7, device="hpu").cosh().sinh().cosh()), (1, 0)),
    # The recipe cache has it, also after a reset of the counters.
    "a known graph": (lambda: _graphs(5, 5, 5), (3, 0)),
    # Two new shapes of known operators miss the recipe cache once each.
    "new shapes": (lambda: _graphs(11, 12, 11, 12, 5), (5, 2)),
    "a new dtype": (lambda: _graph(5, torch.bfloat16), (1, 1)),
}


@pytest.mark.parametrize("step", _RECOMPILATIONS)
def test_recompilations_of_a_step(step: str, statistics: Callable[[], dict[str, int]]) -> None:
    """A recipe is specific to operators, shapes and dtypes."""
    work, expected = _RECOMPILATIONS[step]
    _graph(5)
    hpu_sim.reset_stats()

    work()

    assert _pick(statistics(), _GRAPHS) == (*expected, 0)


# What reads a value of the card: graphs, host syncs and device-to-host copies of each.
_READS: Final[dict[str, tuple[Callable[[torch.Tensor], Any], tuple[int, int, int]]]] = {
    "item": (lambda x: x.sum().item(), (1, 1, 1)),
    "item of nothing new": (lambda x: x[0, 0].item(), (0, 1, 1)),
    "float": (lambda x: float(x.sum()), (1, 1, 1)),
    "format": (lambda x: f"{x.sum():.1f}", (1, 1, 1)),
    "if": (lambda x: "yes" if x.sum() > 0 else "no", (1, 1, 1)),
    "isnan any": (lambda x: bool(torch.isnan(x).any()), (1, 1, 1)),
    "cpu": (lambda x: (x + 1).cpu(), (1, 1, 1)),
    "to cpu in another dtype": (lambda x: (x + 1).to("cpu", torch.float64), (1, 1, 1)),
    "copy to pageable memory": (lambda x: torch.empty(4, 4).copy_(x + 1, non_blocking=True), (1, 1, 1)),
    "tolist": (lambda x: (x + 1).tolist(), (1, 1, 1)),
    "nonzero": (lambda x: x.nonzero(), (1, 1, 0)),
    "where": (lambda x: torch.where(x > 0), (1, 1, 0)),
    "mask": (lambda x: x[x > 0], (1, 1, 0)),
    "mask of the host": (lambda x: x[torch.ones(4, 4) > 0], (0, 0, 0)),
    "assign at a mask": (lambda x: x.__setitem__(x > 0, torch.ones(16, device="hpu")), (1, 1, 0)),
    "masked_select": (lambda x: x.masked_select(x > 0), (1, 1, 0)),
    "unique": (torch.unique, (1, 1, 0)),
    "equal": (lambda x: torch.equal(x, x), (1, 1, 0)),
    "synchronize": (lambda x: (x + 1, hpu.synchronize()), (1, 1, 0)),
}


@pytest.mark.parametrize("read", _READS)
def test_reading_on_the_host_is_a_host_sync(read: str, statistics: Callable[[], dict[str, int]]) -> None:
    """A host sync ends the graph. A data-dependent shape is a host sync without a copy."""
    x = torch.empty(4, 4, device="hpu")
    x.copy_(torch.ones(4, 4))
    hpu_sim.reset_stats()
    function, expected = _READS[read]

    function(x)

    assert _pick(statistics(), ("graphs", "host_syncs", "d2h_copies")) == expected


_NO_READS: Final[dict[str, Callable[[torch.Tensor], Any]]] = {
    "arithmetic": lambda x: (x + 1) @ x,
    "index with numbers": lambda x: x[1, 2:],
    "index with indices of the card": lambda x: x[torch.arange(2, device="hpu")],
    "assign at indices of the card": lambda x: x.__setitem__(
        torch.arange(2, device="hpu"), torch.ones(4, device="hpu")
    ),
    "assign under a mask": lambda x: x.masked_fill_(x > 0, 2),
    "choose by a mask": lambda x: torch.where(x > 0, x, -x),
    "random numbers": lambda x: functional.dropout(x) + torch.rand_like(x),
    "gradient": lambda x: x.detach().requires_grad_().exp().sum().backward(),
    "clipping": lambda x: torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0),
    "length and shape": lambda x: (len(x), x.shape, x.dtype, x.device),
    "cross entropy": lambda x: functional.cross_entropy(x, torch.zeros(4, dtype=torch.long, device="hpu")),
    "copy": lambda x: x.clone(),
    "creation": lambda x: [make(3, device="hpu") for make in (torch.ones, torch.zeros, torch.empty, torch.rand)],
}


@pytest.mark.parametrize("work", _NO_READS)
def test_work_on_the_device_is_not_a_host_sync(work: str, statistics: Callable[[], dict[str, int]]) -> None:
    """Nothing is copied, and the graph stays open."""
    x = torch.ones(4, 4, device="hpu")
    htcore.mark_step()
    hpu_sim.reset_stats()

    _NO_READS[work](x)

    assert _pick(statistics(), _GRAPHS + _COPIES) == (0,) * 7


# Copies to the card, and their bytes.
_TO_THE_CARD: Final[dict[str, tuple[Callable[[], Any], int]]] = {
    "to": (lambda: torch.ones(3).to("hpu"), 12),
    "to without blocking": (lambda: torch.ones(3).to("hpu", non_blocking=True), 12),
    "to another dtype": (lambda: torch.ones(3).to("hpu", torch.float64), 12),
    "copy_": (lambda: torch.empty(3, device="hpu").copy_(torch.ones(3)), 12),
    "tensor": (lambda: torch.tensor([1, 2], device="hpu"), 16),
    "assignment": (lambda: torch.empty(2, 3, device="hpu").__setitem__(0, torch.ones(3)), 12),
    "not contiguous": (lambda: torch.ones(4, 6)[:, ::2].to("hpu"), 48),
    "empty": (lambda: torch.empty(0).to("hpu"), 0),
}


@pytest.mark.parametrize("way", _TO_THE_CARD)
def test_copies_to_the_device_are_counted(way: str, statistics: Callable[[], dict[str, int]]) -> None:
    """Each is one copy with its bytes, and not a host sync."""
    function, size = _TO_THE_CARD[way]

    function()

    assert _pick(statistics(), ("h2d_copies", "h2d_bytes", "d2h_copies", "host_syncs")) == (1, size, 0, 0)


def test_copies_to_the_host_are_counted(statistics: Callable[[], dict[str, int]]) -> None:
    x = torch.ones(3, 5, device="hpu")
    hpu_sim.reset_stats()

    x.cpu()
    x[0, 0].item()

    assert _pick(statistics(), _COPIES) == (0, 0, 2, 64)


@pytest.mark.needs_torch("2.5", "pinned memory for devices other than CUDA")
def test_a_non_blocking_copy_to_pinned_memory_is_not_a_host_sync(statistics: Callable[[], dict[str, int]]) -> None:
    """Only a non-blocking one is not. It ends the graph in any case."""
    pinned = torch.empty(3).pin_memory()
    x = torch.ones(3, device="hpu")
    pinned.copy_(x, non_blocking=True)
    asynchronous = _pick(statistics(), ("graphs", "host_syncs", "d2h_copies", "d2h_bytes"))

    pinned.copy_(x)

    assert asynchronous == (1, 0, 1, 12)
    assert statistics()["host_syncs"] == 1


def test_the_peak_of_the_process_outlives_resets(statistics: Callable[[], dict[str, int]]) -> None:
    """A report shows it, however often the program resets its own counters."""
    torch.empty(1 << 22, device="hpu")
    hpu.reset_peak_memory_stats()

    rest = hpu.memory_allocated()  # Of earlier tests.
    assert statistics()["peak_bytes"] < rest + (4 << 22) <= counters.lifetime_stats()["peak_bytes"]


_OPTIMIZERS: Final[dict[str, Callable[[Any], torch.optim.Optimizer]]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "AdamW fused": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}


@pytest.mark.parametrize(
    "optimizer",
    [
        "SGD",
        "AdamW",
        pytest.param("AdamW fused", marks=pytest.mark.needs_torch("2.9", "hpu among the devices of fused optimizers")),
    ],
)
def test_a_training_step_is_two_graphs(optimizer: str, statistics: Callable[[], dict[str, int]]) -> None:
    """A step has no recompilation and no host sync, and copies the two tensors of the batch."""
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 4), torch.nn.LayerNorm(4), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(4, 2)
    ).to("hpu")
    stepper = _OPTIMIZERS[optimizer](model.parameters())
    steps = []
    htcore.mark_step()
    for _ in range(4):
        hpu_sim.reset_stats()
        x, y = torch.randn(3, 8).to("hpu"), torch.zeros(3, dtype=torch.long).to("hpu")
        stepper.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        htcore.mark_step()
        stepper.step()
        htcore.mark_step()
        steps.append(_pick(statistics(), (*_GRAPHS, "h2d_copies", "h2d_bytes", "d2h_copies")))

    assert [step[0] for step in steps] == [2, 2, 2, 2]
    assert steps[1:] == [(2, 0, 0, 2, 3 * 8 * 4 + 3 * 8, 0)] * 3


def test_eager_mode_has_no_graphs(output_of: Callable[..., str]) -> None:
    """Operators run one by one; the other counters work as in lazy mode."""
    program = """
    import json
    import hpu_sim
    hpu_sim.activate()
    import torch
    import habana_frameworks.torch.core as htcore

    for size in (3, 4):
        (torch.ones(size).to("hpu") * 2).sum().item()
        htcore.mark_step()
    print(json.dumps(hpu_sim.stats()))
    """

    counted = json.loads(output_of(program, PT_HPU_LAZY_MODE="0"))

    assert _pick(counted, _GRAPHS + _COPIES) == (0, 0, 2, 2, 28, 2, 8)
