"""accelerate selects the device and trains as plain torch does on the CPU."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import accelerate
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, find_executable_batch_size, is_hpu_available
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.hpu(devices=2, lazy=True)

_EXAMPLES: Final = 64


@pytest.fixture
def accelerator() -> Iterator[Accelerator]:
    """Return a new Accelerator; teardown resets its process-wide state."""
    accelerator = Accelerator()
    yield accelerator
    accelerator.free_memory()
    accelerator.state._reset_state(reset_partial_state=True)


def test_the_device_is_selected(accelerator: Accelerator) -> None:
    """Accelerate detects it by the bridge, without a setting."""
    assert is_hpu_available()
    assert accelerator.device.type == "hpu"
    assert accelerator.distributed_type == DistributedType.NO


def _data() -> DataLoader[tuple[Tensor, ...]]:
    inputs = torch.randn(_EXAMPLES, 16, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=8)


def test_training_equals_plain_torch(accelerator: Accelerator) -> None:
    """The losses of all steps are equal."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    model = copy.deepcopy(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, data = accelerator.prepare(model, optimizer, _data())
    losses = []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())

    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    plain_losses = []
    for inputs, targets in _data():
        plain_optimizer.zero_grad()
        plain_loss = nn.functional.mse_loss(plain(inputs), targets)
        plain_loss.backward()
        plain_optimizer.step()
        plain_losses.append(plain_loss.item())

    torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain_losses))
    assert {parameter.device.type for parameter in model.parameters()} == {"hpu"}


def test_mixed_precision_computes_in_bfloat16(accelerator: Accelerator) -> None:
    """It uses the device's autocast."""
    accelerator.state._reset_state(reset_partial_state=True)
    mixed = Accelerator(mixed_precision="bf16")

    with mixed.autocast():
        product = torch.ones(2, 2, device=mixed.device) @ torch.ones(2, 2, device=mixed.device)

    assert product.dtype == torch.bfloat16


def test_find_executable_batch_size_works() -> None:
    """Accelerate recognizes the out-of-memory error by its text, and retries with a smaller batch."""
    tried = []

    @find_executable_batch_size(starting_batch_size=64)  # type: ignore[untyped-decorator] # accelerate has no types
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        # 1 TiB from 40 on. On a card, creating an empty tensor takes no memory.
        torch.empty((batch_size // 40) << 40, dtype=torch.uint8, device="hpu").fill_(0)
        return batch_size

    assert train() == tried[-1] < tried[0] == 64


@pytest.fixture(scope="module")
def two_ranks(run_ranks: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of rank 0 after a training with two ranks."""
    folder: Path = tmp_path_factory.mktemp("state")
    (line,) = [line for line in run_ranks("accelerated.py", folder) if line.startswith('{"kind"')]
    known: dict[str, Any] = json.loads(line)
    return known


def test_two_ranks_train_together(two_ranks: dict[str, Any]) -> None:
    """Gradients are accumulated and clipped."""
    losses = two_ranks["losses"]

    assert two_ranks["kind"] == "MULTI_HPU"
    assert losses[-1] < losses[0] / 2


def test_the_state_of_two_ranks_is_saved_and_loaded(two_ranks: dict[str, Any]) -> None:
    """It involves a barrier with the device's number on the machine."""
    assert two_ranks["restored"]


def test_each_example_is_gathered_once(two_ranks: dict[str, Any]) -> None:
    """Examples that pad the last batch are dropped."""
    assert two_ranks["gathered"] == 60


@pytest.mark.parametrize("script", ["test_script.py", "test_ops.py", "test_sync.py", "test_distributed_data_loop.py"])
def test_its_own_tests_pass(script: str, run_ranks: Callable[..., list[str]]) -> None:
    """The wheel of accelerate contains them: data loaders, also torchdata's, operations, accumulation, training."""
    assert accelerate.__file__ is not None

    run_ranks(Path(accelerate.__file__).parent / "test_utils" / "scripts" / script)
