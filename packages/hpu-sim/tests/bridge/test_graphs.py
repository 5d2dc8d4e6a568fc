"""HPU graphs, in lazy mode."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it


@pytest.fixture
def model() -> torch.nn.Module:
    """Return a small model on the device, with running statistics."""
    torch.manual_seed(1)
    layers = (torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return torch.nn.Sequential(*layers).to("hpu")


def _rows(count: int = 5) -> torch.Tensor:
    return torch.randn(count, 4, device="hpu")


def _same(first: torch.nn.Module, second: torch.nn.Module, *, gradients: bool = False) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.equal(a.grad if gradients else a, b.grad if gradients else b) for a, b in pairs)  # type: ignore[arg-type]


def test_a_whole_training_step_can_be_replayed(model: torch.nn.Module) -> None:
    plain = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, plain)]
    static = _rows()
    # The first step makes the momentum's tensors, which a replay must not do again.
    for net, optimizer in ((model, optimizers[0]), (plain, optimizers[1])):
        net(static).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    captured = hpu.HPUGraph()
    with hpu.graph(captured):
        model(static).pow(2).mean().backward()
        optimizers[0].step()
    batches = [static.clone(), _rows(), _rows()]

    for batch in batches[1:]:
        static.copy_(batch)
        captured.replay()
    for batch in batches:
        optimizers[1].zero_grad()
        plain(batch).pow(2).mean().backward()
        optimizers[1].step()

    assert _same(model, plain)


def test_a_replay_is_one_graph(statistics: Callable[[], dict[str, int]]) -> None:
    """The second replay hits the recipe cache."""
    static = _rows()
    captured = hpu.HPUGraph()
    with hpu.graph(captured):
        static.sin().cos()
    captured.replay()
    before = statistics()

    captured.replay()

    assert statistics()["graphs"] - before["graphs"] == 1
    assert statistics()["recompilations"] == before["recompilations"]


@pytest.mark.parametrize(
    "program",
    [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.cpu()],
    ids=["item", "nonzero", "mask", "cpu"],
)
def test_data_dependent_operators_cannot_be_captured(program: Callable[[torch.Tensor], Any]) -> None:
    """A replay can neither return a value to the host nor change a shape."""
    rows = _rows()

    with pytest.raises(RuntimeError, match="not supported during hpu graph capturing"), hpu.graph(hpu.HPUGraph()):
        program(rows)

    assert not hpu.is_current_stream_capturing()


def test_cpu_operators_are_not_captured() -> None:
    captured = hpu.HPUGraph()
    rows = _rows()
    with hpu.graph(captured):
        torch.ones(2).add(1)
        rows.add(1)

    assert len(captured._calls) == 1


def test_a_replay_draws_new_random_numbers() -> None:
    captured = hpu.HPUGraph()
    with hpu.graph(captured):
        drawn = torch.rand(8, device="hpu")
    first = drawn.clone()

    captured.replay()

    assert not torch.equal(drawn, first)


def test_captures_out_of_order_are_errors() -> None:
    captured = hpu.HPUGraph()
    with pytest.raises(RuntimeError, match=r"call capture_begin\(\) first"):
        captured.capture_end()
    with hpu.graph(captured), pytest.raises(RuntimeError, match="another capture is active"):
        hpu.HPUGraph().capture_begin()
    captured.reset()
    with pytest.raises(RuntimeError, match="there is nothing to replay"):
        captured.replay()


def test_graphed_callables_have_the_same_gradients(model: torch.nn.Module) -> None:
    plain = copy.deepcopy(model)
    inputs = [_rows().requires_grad_() for _ in range(2)]
    graphed = hpu.make_graphed_callables(model, (_rows(),), warmups=2)
    # Warming up and capturing went through the statistics of the batch norm.
    plain.load_state_dict(model.state_dict())

    for net, rows in ((graphed, inputs[0]), (plain, inputs[1].data.copy_(inputs[0]).requires_grad_())):
        net(rows).pow(2).sum().backward()

    assert graphed is model
    assert _same(model, plain, gradients=True)


def test_several_callables_return_a_tuple() -> None:
    """They are captured in order, and gradients reach their inputs."""
    double, square = hpu.make_graphed_callables(
        (lambda x: x + x, lambda x: x.square()), ((_rows().requires_grad_(),), (_rows().requires_grad_(),))
    )
    rows: Any = _rows().requires_grad_()

    square(double(rows)).sum().backward()

    assert torch.equal(rows.grad, 8 * rows)


def test_a_graphed_module_runs_without_its_graph_in_the_other_mode(model: torch.nn.Module) -> None:
    """A graph is specific to training or evaluation mode."""
    plain = copy.deepcopy(model).eval()
    graphed = hpu.make_graphed_callables(model, (_rows(),))
    plain.load_state_dict(model.state_dict())
    rows = _rows(9)

    assert torch.equal(graphed.eval()(rows), plain(rows))


def test_graphed_callables_reject_other_shapes_and_types(model: torch.nn.Module) -> None:
    with pytest.raises(TypeError, match="`sample_args` must be tensors, got float"):
        hpu.make_graphed_callables(model, (1.0,))
    graphed = hpu.make_graphed_callables(model, (_rows(),))

    with pytest.raises(RuntimeError, match="size"):
        graphed(_rows(6))


@pytest.mark.parametrize("allowed", [False, True])
def test_an_input_without_gradient_must_be_allowed(allowed: bool) -> None:
    """Torch detects it during the capture of the backward pass."""
    samples = (_rows().requires_grad_(), _rows().requires_grad_())

    def first(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return x + x + x

    if not allowed:
        with pytest.raises(RuntimeError, match="allow_unused"):
            hpu.make_graphed_callables(first, samples)
        return
    rows: Any = _rows().requires_grad_()
    unused = _rows().requires_grad_()
    hpu.make_graphed_callables(first, samples, allow_unused_input=True)(rows, unused).sum().backward()
    assert unused.grad is None
    assert torch.equal(rows.grad, torch.full_like(rows, 3))


def test_a_wrapped_module_can_bypass_its_graphs(model: torch.nn.Module) -> None:
    """Gradients flow then, unlike through a replay. In warm-up mode it only captures."""
    wrapped = hpu.wrap_in_hpu_graph(model)
    rows = _rows()

    assert wrapped(rows, warmup_mode=True, cache_tensors_list=[]) is None
    assert not wrapped(rows).requires_grad
    assert wrapped(rows, bypass_hpu_graphs=True).requires_grad


def test_a_full_cache_captures_no_more(model: torch.nn.Module) -> None:
    """Further shapes run without a graph until the cache is cleared."""
    wrapped = hpu.wrap_in_hpu_graph(model.eval(), max_graphs=1)
    wrapped(_rows(2))

    assert wrapped(_rows(3)) is not wrapped(_rows(3))
    wrapped.clear_cache()
    assert wrapped(_rows(3)) is wrapped(_rows(3))


@pytest.mark.parametrize("use_lfu", [False, True])
def test_a_cached_module_trains_as_the_module_itself(model: torch.nn.Module, use_lfu: bool) -> None:
    """Each shape has its passes, and evicted ones are captured again."""
    plain = copy.deepcopy(model)
    cached = hpu.ModuleCacher(max_graphs=2)(model, use_lfu=use_lfu)

    for count in (3, 5, 3, 7, 5):
        rows = _rows(count)
        # A capture runs the batch norm once more, which on a card it does not.
        cached.load_state_dict(plain.state_dict())
        for net in (cached, plain):
            net.zero_grad()
            net(rows).pow(2).sum().backward()

        assert _same(cached, plain, gradients=True)


def test_gradients_of_replays_are_added_up(model: torch.nn.Module) -> None:
    """With `have_grad_accumulation`, a replay does not overwrite the gradients of the one before."""
    model.eval()
    plain = copy.deepcopy(model)
    cached = hpu.ModuleCacher()(model, have_grad_accumulation=True)

    for rows in (_rows(), 2 * _rows(), 3 * _rows()):
        for net in (cached, plain):
            net(rows).pow(2).sum().backward()

    assert _same(cached, plain, gradients=True)


def test_a_module_cacher_evicts_graphs(model: torch.nn.Module) -> None:
    for use_lfu, kept in ((False, [5, 7]), (True, [3, 7])):
        cacher = hpu.ModuleCacher(max_graphs=2)
        cached = cacher(copy.deepcopy(model).eval(), use_lfu=use_lfu)
        for count in (3, 3, 3, 5, 5, 7):
            cached(_rows(count))

        assert [call.forward.inputs[0].shape[0] for call in cacher._graphs.values()] == kept


def test_a_copy_shares_the_parameters(model: torch.nn.Module) -> None:
    """With `inplace=False` the model itself does not change."""
    cached = hpu.ModuleCacher()(model, inplace=False)

    assert cached is not model
    assert "forward" not in vars(model)
    assert next(cached.parameters()) is next(model.parameters())


def test_a_verbose_module_cacher_logs_its_graphs(model: torch.nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    cacher = hpu.ModuleCacher()
    cached = cacher(model, verbose=True, log_frequency=2)

    with caplog.at_level("INFO"):
        cached(_rows())
        cached(_rows())

    assert caplog.messages == ["iteration 2: 1 graphs (simulated)"]


def test_collectives_cannot_be_captured(output_on: Callable[..., str]) -> None:
    program = """
    import torch, tempfile, torch.distributed as dist
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(2, device="hpu")
    try:
        with torch.hpu.graph(torch.hpu.HPUGraph()):
            dist.all_reduce(x)
    except RuntimeError as error:
        print(error)
    dist.destroy_process_group()
    """

    output = output_on(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="1")

    assert output == "collective nonSFG is not supported during hpu graph capturing"


@pytest.mark.parametrize("expression", ["HPUGraph()", "graph(None)"])
def test_eager_mode_has_no_graphs(expression: str, output_on: Callable[..., str]) -> None:
    """After 1.19 the names exist in eager mode and raise."""
    program = f"""
    import torch
    try:
        torch.hpu.{expression}
    except RuntimeError as error:
        print(error)
    """

    output = output_on(program, HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0")

    assert output == f"{expression.split('(', maxsplit=1)[0]} is available in lazy mode only."
