"""compile_regions in plain loops and with Fabric, on one simulated card in eager mode."""

import logging
from typing import Any

import pytest
import torch
from torch import nn

from hpu_compile import _torch, compile_regions
from hpu_core import FabricSingleHPUStrategy, HPUAccelerator, frameworks

from ..modules import BATCH, WIDTH, Block, Classifier, are_equal  # noqa: TID252 - pytest gives tests no absolute name

pytestmark = pytest.mark.usefixtures("compiler")


def _network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(Block() for _ in range(3))).to("hpu")


def _train(network: nn.Module, backward: Any = torch.Tensor.backward) -> list[float]:
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    torch.manual_seed(2)
    losses = []
    for _ in range(3):
        loss = network(torch.randn(BATCH, WIDTH).to("hpu").requires_grad_()).square().mean()
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("regions", ["blocks", ["0", "2"]])
def test_plain_loop_equals_the_uncompiled_one(regions: Any) -> None:
    plain, compiled = _network(), _network()
    with compile_regions(compiled, regions):
        assert _train(plain) == _train(compiled)

    assert are_equal(plain, compiled)


def test_fabric_trains_the_compiled_module() -> None:
    fabric = (
        frameworks.current()
        .fabric()
        .Fabric(accelerator=HPUAccelerator(), devices=1, strategy=FabricSingleHPUStrategy())
    )
    wrapped = fabric.setup_module(_network())
    with compile_regions(wrapped) as compilation:
        assert _train(wrapped, fabric.backward) == _train(_network())

    assert compilation.report.graphs == 1


def test_first_block_has_a_graph_more_if_its_inputs_need_no_gradient() -> None:
    network = _network()
    with compile_regions(network) as compilation:
        network(torch.ones(BATCH, WIDTH, device="hpu")).sum().backward()

    assert compilation.report.graphs == 2
    assert "requires_grad" in compilation.report.regions[0].recompilations[0].guard


def test_compiled_module_keeps_its_compilation() -> None:
    network = _network()
    network[0].compile(backend="hpu_backend", dynamic=False)
    own = network[0]._compiled_call_impl
    with compile_regions(network):
        assert network[0]._compiled_call_impl is own

    assert network[0]._compiled_call_impl is own


def test_layers_of_torch_are_compiled() -> None:
    """Dynamo skips files of torch's own, so `Linear.compile()` alone compiles nothing."""
    layer = nn.Linear(WIDTH, WIDTH).to("hpu")
    with compile_regions(layer) as compilation:
        _train(layer)

    assert compilation.report.graphs == 1


def test_report_is_of_its_own_regions_alone() -> None:
    first, second = _network(), Classifier(count=2).to("hpu")
    with compile_regions(first) as of_first, compile_regions(second) as of_second:
        _train(first)
        with torch.no_grad():
            second(torch.ones(BATCH, WIDTH, device="hpu"))

    assert dict(of_first.report.regions[0].graphs) == {"training": 1}
    assert dict(of_second.report.regions[0].graphs) == {"evaluation": 1}


def test_invalid_shapes_are_refused() -> None:
    network = _network()
    with pytest.raises(ValueError, match="`shapes` must be a positive int, got 0"):
        compile_regions(network, shapes=0)

    assert network[0]._compiled_call_impl is None


def test_zero_3_is_refused() -> None:
    network = _network()
    network[0].first.weight.ds_id = 0  # type: ignore[union-attr] # DeepSpeed's mark of a partitioned parameter
    with pytest.raises(RuntimeError, match=r"does not support ZeRO stage 3.*use stage 1 or 2, or FSDP2"):
        compile_regions(network)


def test_options_of_torch_are_restored_in_any_order() -> None:
    before = torch._dynamo.config.cache_size_limit
    first, second = compile_regions(_network()), compile_regions(_network())
    first.restore()
    raised = torch._dynamo.config.cache_size_limit
    second.restore()

    assert before < raised == 256
    assert torch._dynamo.config.cache_size_limit == before


def test_error_while_starting_restores_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    before, handlers = torch._dynamo.config.cache_size_limit, list(logging.getLogger("torch.__trace").handlers)
    network, compile_module = _network(), _torch.compile_module

    def fail_at_the_second(module: nn.Module, **options: Any) -> None:
        if module is network[1]:
            raise ArithmeticError
        compile_module(module, **options)

    monkeypatch.setattr(_torch, "compile_module", fail_at_the_second)
    with pytest.raises(ArithmeticError):
        compile_regions(network)

    assert torch._dynamo.config.cache_size_limit == before
    assert logging.getLogger("torch.__trace").handlers == handlers
    assert network[0]._compiled_call_impl is None
