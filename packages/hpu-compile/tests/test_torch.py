"""Tests of torch's private names: they fail when torch changes what this package reads."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from hpu_compile import _torch

pytestmark = pytest.mark.usefixtures("compiler")


class _Events(list[_torch.CompileEvent]):
    """What dynamo has told."""

    def __init__(self, modules: dict[int, str]) -> None:
        super().__init__()
        self.modules = modules
        self.calls: dict[_torch.FrameKey, _torch.Call | None] = {}

    def tell(self, event: _torch.CompileEvent) -> None:
        # A frame is told of first when it is compiled, and later by the backward pass.
        self.calls.setdefault(event.key, _torch.find_call(self.modules))
        self.append(event)

    @property
    def seconds(self) -> list[float]:
        return [event.seconds for event in self if event.seconds]


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.layer(rows))
        torch._dynamo.graph_break()
        return hidden + 1


def _run(module: nn.Module, *sizes: int) -> _Events:
    events = _Events({id(module): "net"})
    _torch.compile_module(module, backend="aot_eager", dynamic=False)
    with _torch.listen(events.tell):
        for size in sizes:
            module(torch.ones(size, 4)).sum().backward()
    return events


@pytest.mark.filterwarnings("ignore")
def test_events_of_a_compilation() -> None:
    events = _run(_Net(), 2, 3)

    # Of each shape the graph before the break, and the one after it.
    assert len(events.seconds) == 4
    assert {call and call.region for call in events.calls.values()} == {"net"}
    assert all(call and __file__ in call.line for call in events.calls.values())
    guards = [event.guard for event in events if event.guard]
    assert guards[0].startswith("tensor 'rows' size mismatch at index 0. expected 2, actual 3")
    breaks = [event.graph_break for event in events if event.graph_break]
    assert {(found.file, "reak" in found.reason) for found in breaks} == {(__file__, True)}


@pytest.mark.filterwarnings("ignore")
def test_copy_of_a_layer_of_torch_is_independent() -> None:
    layer = nn.Linear(4, 4)
    _run(layer, 2)
    other = copy.deepcopy(layer)
    torch.nn.init.zeros_(other.weight)
    torch.nn.init.zeros_(other.bias)

    assert not other(torch.ones(1, 4)).any()
    assert "forward" not in vars(layer)


@pytest.mark.filterwarnings("ignore")
def test_hooks_of_a_layer_of_torch_are_not_traced() -> None:
    """Those of FSDP cannot be."""
    module = nn.Linear(4, 4)
    traced: list[bool] = []
    module.register_forward_pre_hook(lambda *_: traced.append(torch.compiler.is_compiling()))
    _run(module, 2, 2)

    assert traced == [False, False]


def test_nothing_is_compiled_while_eager_mode_is_forced() -> None:
    stance = _torch.force_eager()
    if stance is None:
        pytest.skip("Requires: torch 2.6")
    calls: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(inputs)
        return graph.forward

    compiled = torch.compile(lambda rows: rows + 1, backend=backend)
    with stance:
        compiled(torch.ones(2))
    inside = len(calls)
    compiled(torch.ones(2))

    assert (inside, len(calls)) == (0, 1)


def test_backends_are_looked_up() -> None:
    assert callable(_torch.lookup_backend("aot_eager"))
    with pytest.raises(Exception, match="Invalid backend"):
        _torch.lookup_backend("no_such_backend")
