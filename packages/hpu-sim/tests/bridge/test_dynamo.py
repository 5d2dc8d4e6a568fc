"""torch.compile with the bridge's backend, in eager mode."""

from __future__ import annotations

import importlib
import runpy
from typing import TYPE_CHECKING, Final

import pytest
import torch
from habana_frameworks.torch.dynamo.compile_backend import config

from hpu_testing.fork_server import PRELOAD

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.needs_torch("2.1", "compiler for Python 3.11")

# A first compilation imports these.
_COMPILER: Final = "torch._dynamo.repro.after_dynamo,torch._functorch.partitioners"
_EAGER: Final = {"HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "0", PRELOAD: _COMPILER}
_MODEL: Final = """
import copy
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
).to("hpu")
plain = copy.deepcopy(model)
rows = torch.randn(5, 4, device="hpu")
def count():
    return dict(torch.hpu.metric_global("graph_compilation").stats())["TotalNumber"]
"""


def test_a_compiled_model_trains_as_an_uncompiled_one(output_on: Callable[..., str]) -> None:
    program = f"""{_MODEL}
compiled = torch.compile(model, backend="hpu_backend")
for net in (compiled, plain):
    for _ in range(2):
        net.zero_grad()
        output = net(rows)
        output.pow(2).sum().backward()
same = all(torch.allclose(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters()))
print(torch.equal(compiled(rows), plain(rows)), same, torch.allclose(model[1].running_mean, plain[1].running_mean))
print(count())
"""

    assert output_on(program, **_EAGER) == "True True True\n2"


def test_a_function_changes_its_input_in_place(output_on: Callable[..., str]) -> None:
    program = f"""{_MODEL}
def grow(x):
    x.add_(1)
    return x * 2
for keep in (True, False):
    torch._dynamo.reset()
    data = torch.zeros(2, device="hpu")
    options = dict(keep_input_mutations=keep, inference=True, force_static_compile=True)
    out = torch.compile(grow, backend="hpu_backend", options=options)(data)
    print(data.tolist(), out.tolist())
"""

    assert output_on(program, **_EAGER) == "[1.0, 1.0] [2.0, 2.0]\n[1.0, 1.0] [2.0, 2.0]"


def test_a_result_is_traced_with_the_strides_that_it_has() -> None:
    """Torch assumes contiguous results on hpu, as a card's are."""
    importlib.import_module("torch._dynamo")
    from torch._subclasses import FakeTensorMode

    rows = torch.ones(2, 3, device="hpu").T

    with FakeTensorMode() as mode:
        traced = mode.from_tensor(rows).exp()

    assert traced.stride() == rows.exp().stride() == (1, 3)


def test_an_unknown_option_is_named(output_on: Callable[..., str]) -> None:
    program = f"""{_MODEL}
try:
    torch.compile(model, backend="hpu_backend", options=dict(fast=True))(rows)
except Exception as error:
    print(next(line for line in str(error).splitlines() if "options" in line))
"""

    assert output_on(program, **_EAGER).endswith(
        "`options` of hpu_backend must be among force_static_compile, inference, keep_input_mutations, "
        "use_eager_fallback, got 'fast'"
    )


def test_the_backend_is_registered_after_a_late_activation(output_of: Callable[..., str]) -> None:
    """A program may import dynamo before it activates the simulator."""
    program = """
    import torch, torch._dynamo
    import hpu_sim
    hpu_sim.activate()
    print("hpu_backend" in torch._dynamo.list_backends())
    """

    assert output_of(program, PT_HPU_LAZY_MODE="0") == "True"


@pytest.mark.needs_torch("2.2", "interfaces of devices for dynamo")
def test_dynamo_has_an_interface_of_the_device(output_on: Callable[..., str]) -> None:
    program = """
    import torch
    from torch._dynamo.device_interface import get_interface_for_device
    interface = get_interface_for_device("hpu")
    print(interface is get_interface_for_device("hpu:0"), interface.device_count(), interface.is_available())
    print(interface.current_device(), interface.exchange_device(0), interface.maybe_exchange_device(0))
    print(interface.get_device_properties() == torch.hpu.get_device_properties())
    print(interface.get_compute_capability() == torch.hpu.get_device_capability())
    print(interface.is_bf16_supported(), interface.synchronize(), interface.Stream is torch.hpu.Stream)
    """

    assert output_on(program, **_EAGER).splitlines() == ["True 1 True", "0 0 0", "True", "True", "True None True"]


@pytest.mark.parametrize(
    ("variable", "option"),
    [("PT_HPU_KEEP_INPUT_MUTATIONS", "keep_input_mutations"), ("PT_HPU_USE_EAGER_FALLBACK", "use_eager_fallback")],
)
@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False)])
def test_variables_set_the_options(
    variable: str, option: str, value: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)

    assert runpy.run_path(config.__file__)[option] is expected


_PARTITIONS: Final = """
import torch
from hpu_sim.device import events
breaks = []
events.subscribe(frozenset({"graph_break"}), lambda event: breaks.append(event.name))
def count():
    return dict(torch.hpu.metric_global("graph_compilation").stats())["TotalNumber"]
def function(x, rows):
    y = x.exp() + 1
    return y[rows] * 2
x = torch.ones(3, 4, device="hpu")
rows = torch.tensor([0, 1], device="hpu")
"""


def test_a_graph_is_split_at_operators_of_eager_mode_alone(output_on: Callable[..., str]) -> None:
    """Each part is compiled, and the report gets the operators."""
    program = f"""{_PARTITIONS}
torch.compile(lambda x: x.sin() + 1, backend="hpu_backend")(x)
print(count(), breaks)
result = torch.compile(function, backend="hpu_backend")(x, rows)
print(torch.equal(result, function(x, rows)), count(), breaks)
"""

    assert output_on(program, **_EAGER) == "1 []\nTrue 3 ['aten.index.Tensor']"


_REPORTED: Final = """
import torch
from hpu_sim.device.events import subscribe
events = []
kinds = frozenset({"compiled_graph", "trace_break"})
subscribe(kinds, lambda event: events.append((event.kind, event.name, event.detail.rpartition("/")[2])))
def function(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1
"""


def test_the_report_gets_each_graph_of_a_training(output_on: Callable[..., str]) -> None:
    program = f"""{_REPORTED}
x = torch.ones(2, device="hpu", requires_grad=True)
torch.compile(lambda x: (x * 2).sum(), backend="hpu_backend")(x).backward()
print(events)
"""

    graphs = [("compiled_graph", "forward", "1 recipe"), ("compiled_graph", "backward", "1 recipe")]
    assert output_on(program, **_EAGER) == str(graphs)


def test_the_report_gets_graph_breaks_with_their_line(output_on: Callable[..., str]) -> None:
    program = f"""{_REPORTED}
torch.compile(function, backend="hpu_backend")(torch.ones(2, device="hpu"))
print([event[::2] for event in events])
"""

    lines = [("trace_break", "<string>:9"), ("compiled_graph", "1 recipe"), ("compiled_graph", "1 recipe")]
    assert output_on(program, **_EAGER) == str(lines)


_COLLECTIVES: Final = """
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl
from torch.distributed import _functional_collectives as functional
from hpu_sim.device.events import subscribe
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
events = []
kinds = frozenset({"compiled_graph", "graph_break", "trace_break"})
subscribe(kinds, lambda event: events.append((event.kind, event.detail if event.kind == "trace_break" else event.name)))
def compiled(function, **options):
    torch._dynamo.reset()
    events.clear()
    try:
        print(torch.compile(function, backend="hpu_backend", **options)(torch.ones(2, device="hpu")).tolist(), events)
    except torch._dynamo.exc.Unsupported as error:
        print("refused")
def reduce_in_place(x):
    y = x * 2
    dist.all_reduce(y)  # line 20
    return y + 1
def reduce(x):
    y = x * 2
    return functional.all_reduce(y, "sum", dist.group.WORLD) + 1
"""


_FORWARD: Final = ("compiled_graph", "forward")
_FUNCTIONAL: Final = [("graph_break", f"_c10d_functional.{name}.default") for name in ("all_reduce", "wait_tensor")]


def test_a_collective_breaks_the_graph_unless_it_is_functional(output_on: Callable[..., str]) -> None:
    """The bridge disallows functions of torch.distributed; functional collectives run in the graph, in eager mode."""
    calls = "compiled(reduce_in_place); compiled(reduce_in_place, fullgraph=True); compiled(reduce)"
    program = f"{_COLLECTIVES}{calls}\ndist.destroy_process_group()"

    assert output_on(program, **_EAGER).splitlines() == [
        f"[3.0, 3.0] {[('trace_break', '<string>:20'), _FORWARD, _FORWARD]}",
        "refused",
        f"[3.0, 3.0] {[*_FUNCTIONAL, _FORWARD]}",
    ]


def test_operators_of_eager_mode_can_be_forbidden(output_of: Callable[..., str]) -> None:
    program = f"""{_PARTITIONS}
try:
    torch.compile(function, backend="hpu_backend")(x, rows)
except Exception as error:
    print("PT_HPU_USE_EAGER_FALLBACK=0 forbids operators in eager mode" in str(error))
"""

    assert output_of(program, **_EAGER, PT_HPU_USE_EAGER_FALLBACK="0") == "True"


_SHAPES: Final = (
    _PARTITIONS
    + """
def compilations(sizes, options=None, **bounds):
    torch._dynamo.reset()
    before, counts = count(), []
    compiled = torch.compile(lambda x: x.exp() + 1, backend="hpu_backend", dynamic=True, options=options)
    for size in sizes:
        x = torch.ones(size, 4, device="hpu")
        if bounds:
            torch._dynamo.mark_dynamic(x, 0, **bounds)
        compiled(x)
        counts.append(count() - before)
    return counts
"""
)


@pytest.mark.needs_torch("2.2", "bounds of symbolic sizes")
def test_a_recipe_of_a_dynamic_graph_has_ranges(output_on: Callable[..., str]) -> None:
    """From a size to its double, unless it has bounds or is static."""
    program = (
        _SHAPES
        + """
print(compilations([8, 16, 12, 17, 5]))
print(compilations([8, 16, 12, 17, 5], min=4, max=64))
print(compilations([8, 16, 8], {"force_static_compile": True}))
"""
    )

    assert output_on(program, **_EAGER) == "[1, 1, 1, 2, 3]\n[1, 1, 1, 1, 1]\n[1, 2, 2]"
