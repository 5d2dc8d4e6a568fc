"""Steps and metrics, HPU graphs of lazy mode, and torch.compile of eager mode."""

import functools
from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, at_least
from hpu_doctor.verify.register._tools import BRIDGE, compilations_of, hpu

METRICS = Subject("Metrics and steps")
GRAPHS = Subject("HPU graphs", mode="lazy")
# Importing torch's compiler takes seconds.
COMPILE = Subject("torch.compile", mode="eager", seconds=180)


def _compiled_shapes() -> list[int]:
    inputs = [torch.ones(rows, 4, device="hpu") for rows in (3, 3, 5)]
    return [compilations_of(lambda each=each: (each * 2 + 1).sum()) for each in inputs]  # type: ignore[misc]


METRICS.table(
    "new-shape-compiles-once",
    "In lazy mode a graph is compiled for each new shape, and not again for a known one; metrics count it.",
    {
        "graph_compilation": (
            ["TotalNumber", "TotalTime", "AvgTime"],
            lambda: list(bridge.metric("graph_compilation"))[:3],
        ),
        "compilations": ([at_least(1), 0, at_least(1)], _compiled_shapes),
    },
    source=BRIDGE + "habana_lazy, hpu/metrics.py; Intel's Theory of Operations",
    mode="lazy",
    means={
        "hpu-bucketing": "new shapes would cost nothing, or known ones would, or the monitor would not count them.",
        "hpu-sim": "its counts of compilations would be wrong.",
    },
)


def _linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).to("hpu")


def _wrapped() -> list[bool]:
    """Return whether a module in a graph agrees in a capture and in a replay, and is the same module."""
    module = _linear()
    inputs = [torch.randn(3, 4).to("hpu") for _ in range(2)]
    with torch.no_grad():
        expected = [module(each).cpu() for each in inputs]
        wrapped = hpu().wrap_in_hpu_graph(module)
        equal = [torch.allclose(module(each).cpu(), good) for each, good in zip(inputs, expected, strict=True)]
    return [*equal, wrapped is module, hasattr(wrapped, "clear_cache")]


def _captured_shapes() -> list[int]:
    module = _linear()
    with torch.no_grad():
        bridge.wrap_in_hpu_graph(module)
        inputs = [torch.ones(rows, 4, device="hpu") for rows in (9, 9, 9, 9, 6)]
        return [compilations_of(functools.partial(module, each)) for each in inputs][-2:]


GRAPHS.table(
    "wrapped-module-agrees",
    "`wrap_in_hpu_graph` returns the module, which computes what it did before, also in a replay with other inputs, "
    "and compiles nothing for a shape that it has seen.",
    {"results": ([True, True, True, True], _wrapped), "shapes": ([0, at_least(1)], _captured_shapes)},
    source=BRIDGE + "hpu/graphs.py, wrap_in_hpu_graph; optimum-habana max_hpu_graphs",
    means={"hpu-bucketing": "evaluation with HPU graphs would give other results, or `max_graphs` not bound memory."},
)


@GRAPHS.assume(
    source=BRIDGE + "hpu/graphs.py, ModuleCacher; optimum-habana trainer.py:510",
    expected=True,
    means={"hpu-bucketing": "training with HPU graphs would have other gradients."},
)
def cached_module_has_gradients() -> object:
    """A module in `ModuleCacher` has the gradients that it had before."""
    plain, cached = _linear(), _linear()
    inputs = torch.randn(3, 4).to("hpu")
    plain(inputs).sum().backward()
    bridge.cache_hpu_graphs(cached, max_graphs=4)
    cached(inputs).sum().backward()
    return torch.allclose(plain.weight.grad.cpu(), cached.weight.grad.cpu())


def _train() -> list[bool]:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to("hpu")
    inputs, weight = torch.randn(3, 4).to("hpu"), plain.get_parameter("0.weight")
    found = []
    for each in (plain, torch.compile(plain, backend="hpu_backend")):
        plain.zero_grad()
        result = each(inputs)
        result.sum().backward()
        found.append((result.detach().cpu(), weight.grad.cpu() if weight.grad is not None else torch.zeros(1)))
    return [torch.allclose(left, right, atol=1e-2) for left, right in zip(*found, strict=True)]


def _count_graphs() -> int:
    from torch._dynamo.utils import counters

    compiled = torch.compile(torch.nn.Linear(4, 2).to("hpu"), backend="hpu_backend", dynamic=False)
    compiled(torch.ones(3, 4, device="hpu"))
    before = counters["stats"]["unique_graphs"]
    compiled(torch.ones(5, 4, device="hpu"))
    return counters["stats"]["unique_graphs"] - before


COMPILE.table(
    "compiled-module-agrees",
    "A compiled module has the results and gradients of the module itself and is compiled again for a new shape with "
    "dynamic=False.",
    {
        "results and gradients": ([True, True], _train),
        "graphs for a new shape": (at_least(1), _count_graphs),
    },
    source=BRIDGE + "dynamo, compile_backend/backends.py:47-72 and shared_layer.py:136-207; Intel's Runtime flags",
    means={"hpu-compile": "a compiled module would train otherwise, or its limit of recompilations have no effect."},
)
