"""HPU graphs: captured work of lazy mode."""

from typing import Any

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import AtLeast, Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, LATER, core, error_of, hpu

SUBJECT = Subject("HPU graphs", mode="lazy")
assume = SUBJECT.assume


def _linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).to("hpu")


@assume(
    source=BRIDGE + "hpu/graphs.py, conditional import",
    expected=False,
    mode="eager",
    releases="<=1.19",
    means={"hpu-bucketing": "the refusal of graphs in eager mode would come from the bridge."},
)
def no_graphs_in_eager_mode() -> object:
    """In eager mode `torch.hpu` has no HPUGraph."""
    return hasattr(hpu(), "HPUGraph")


@assume(
    source=LATER + "hpu/graphs.py: available in lazy mode only",
    expected=Contains("lazy mode only"),
    mode="eager",
    releases=">=1.20",
    means={
        "hpu-bucketing": "HPU graphs are refused in eager mode where they would work.",
        "hpu-doctor": "`explain` would not know the message.",
    },
)
def graphs_are_refused_in_eager_mode() -> object:
    """In eager mode creating an HPUGraph is an error."""
    return error_of(lambda: hpu().HPUGraph())


@assume(
    source=BRIDGE + "hpu/graphs.py, wrap_in_hpu_graph",
    expected=[True, True],
    means={"hpu-bucketing": "evaluation with HPU graphs would give other results."},
)
def wrapped_module_agrees() -> object:
    """A module in `wrap_in_hpu_graph` computes what it did before, also in a replay with other inputs."""
    module = _linear()
    inputs = [torch.randn(3, 4).to("hpu") for _ in range(2)]
    with torch.no_grad():
        expected = [module(each).cpu() for each in inputs]
        bridge.wrap_in_hpu_graph(module)
        return [torch.allclose(module(each).cpu(), good) for each, good in zip(inputs, expected, strict=True)]


@assume(
    source=BRIDGE + "hpu/graphs.py, wrap_in_hpu_graph patches module.forward",
    expected=[True, True],
    means={"hpu-bucketing": "the callback would lose the module, or could not clear its graphs."},
)
def wrapped_module_is_the_same() -> object:
    """`wrap_in_hpu_graph` returns the module itself, with a `clear_cache`."""
    module = _linear()
    wrapped = hpu().wrap_in_hpu_graph(module)
    return [wrapped is module, hasattr(wrapped, "clear_cache")]


@assume(
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


@assume(
    source=BRIDGE + "hpu/graphs.py, graph and HPUGraph.replay",
    expected=[3.0, 5.0],
    means={"hpu-bucketing": "a captured step would not follow its inputs."},
)
def replay_reads_its_inputs_again() -> object:
    """A captured graph computes from the present values of its input tensors."""
    inputs = torch.ones(2, device="hpu")
    graph = hpu().HPUGraph()
    with hpu().graph(graph):
        output = inputs * 2 + 1
    graph.replay()
    first = output.cpu()[0].item()
    inputs.fill_(2)
    graph.replay()
    return [first, output.cpu()[0].item()]


@assume(
    source=BRIDGE + "hpu/graphs.py, graph has no pool",
    expected=Contains("TypeError"),
    means={"hpu-sim": "code for torch.cuda's graphs would run on a card."},
)
def graph_takes_no_pool() -> object:
    """`graph` takes no `pool`, unlike torch.cuda's."""
    return error_of(lambda: hpu().graph(hpu().HPUGraph(), pool=None))


@assume(
    source=BRIDGE + "hpu_ops/cpu_fallback.cpp:103-105",
    expected=Contains("cpu fallback is not supported during hpu graph capturing"),
    means={"hpu-bucketing": "a module with an operator on the CPU could be captured."},
)
def capture_refuses_operators_on_the_cpu() -> object:
    """An operator on the CPU is an error within a capture."""
    inputs = torch.ones(2, device="hpu")

    def capture() -> None:
        with hpu().graph(hpu().HPUGraph()):
            torch.special.airy_ai(inputs)

    return error_of(capture)


@assume(
    source=BRIDGE + "hpu/graphs.py, is_current_stream_capturing",
    expected=[False, True],
    means={"hpu-bucketing": "what must not run within a capture could not tell."},
)
def capturing_can_be_asked() -> object:
    """`is_current_stream_capturing()` is true within a capture only."""
    inputs = torch.ones(2, device="hpu")
    before = hpu().is_current_stream_capturing()
    with hpu().graph(hpu().HPUGraph()):
        within = hpu().is_current_stream_capturing()
        inputs.add_(1)
    return [before, within]


@assume(
    source=BRIDGE + "hpu/graphs.py, make_graphed_callables",
    expected=True,
    means={"hpu-sim": "programs that use it would fail on a card."},
)
def graphed_callable_agrees() -> object:
    """A function of `make_graphed_callables` computes what the module did."""
    module, inputs = _linear(), torch.randn(3, 4).to("hpu").requires_grad_()
    expected = module(inputs).detach().cpu()
    graphed = hpu().make_graphed_callables(module, (inputs,))
    return torch.allclose(graphed(inputs).detach().cpu(), expected)


@assume(
    source=BRIDGE + "hpu/graphs.py, one graph per set of input shapes; optimum-habana max_hpu_graphs",
    expected=[0, AtLeast(1)],
    means={"hpu-bucketing": "`max_graphs` would not bound memory, or shapes that are known would be captured again."},
)
def known_shape_is_not_captured_again() -> object:
    """A wrapped module compiles nothing for a shape that it has seen, and something for a new one."""
    module = _linear()
    counts = []
    with torch.no_grad():
        bridge.wrap_in_hpu_graph(module)
        for rows in (9, 9, 9, 9, 6):
            inputs = torch.ones(rows, 4, device="hpu")
            core().mark_step()
            before = int(str(bridge.metric("graph_compilation")["TotalNumber"]))
            module(inputs)
            core().mark_step()
            hpu().synchronize()
            counts.append(int(str(bridge.metric("graph_compilation")["TotalNumber"])) - before)
    return counts[-2:]
