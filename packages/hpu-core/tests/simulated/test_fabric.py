"""Tests of Fabric on a single simulated device."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from hpu_core import HPUAccelerator, frameworks


@pytest.fixture
def fabric() -> Any:
    """Fabric for one device, not launched, which Fabric does not require of a single device."""
    return frameworks.current().fabric().Fabric(accelerator=HPUAccelerator(), devices=1)


@pytest.mark.parametrize("launched", [False, True], ids=["not launched", "launched"])
def test_device_is_that_of_tensors(launched: bool, fabric: Any) -> None:
    """A device without an index is not equal to one with an index."""
    before = fabric.device
    if launched:
        fabric.launch()
    module = fabric.setup(torch.nn.Linear(4, 2))
    samples: Any = torch.randn(2, 4)
    (batch,) = fabric.setup_dataloaders(torch.utils.data.DataLoader(samples, batch_size=2))

    assert before == torch.device("hpu")
    assert {fabric.device, module.device, module.weight.device} == {batch.device}


def test_training_without_launch(fabric: Any, tmp_path: Path) -> None:
    module = torch.nn.Linear(4, 2)
    module, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), lr=0.1))
    before = module.weight.detach().cpu().clone()
    fabric.backward(module(torch.ones(2, 4, device=fabric.device)).sum())
    optimizer.step()
    fabric.save(tmp_path / "state.ckpt", {"module": module, "step": 3})
    state = {"module": module, "step": 0}
    fabric.load(tmp_path / "state.ckpt", state)

    assert not torch.equal(before, module.weight.detach().cpu())
    assert state["step"] == 3


def test_a_forward_pass_is_a_step(fabric: Any) -> None:
    """Ranks may wait for each other in it, and failure detection has to know how far each is."""
    fabric.launch()
    module = fabric.setup(torch.nn.Linear(4, 2))
    with mock.patch.object(type(fabric.strategy.process_groups), "step", return_value=nullcontext()) as step:
        module(torch.ones(2, 4, device=fabric.device))
        with torch.no_grad():
            module(torch.ones(2, 4, device=fabric.device))

    assert step.mock_calls == [mock.call("training step"), mock.call("evaluation forward")]


def test_an_error_of_a_program_for_cuda_says_what_to_write(fabric: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return batch.cuda()

    fabric.launch()
    module = fabric.setup(Model())

    with pytest.raises((AssertionError, RuntimeError), match="On Gaudi: there is no CUDA beside Gaudi"):
        module(torch.ones(2, 4, device=fabric.device))
