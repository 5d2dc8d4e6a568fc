"""csrc/execution.cpp: kernels that run later give the numbers of kernels that run now."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _perceptron() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)), torch.randn(6, 8)


def _convolution() -> tuple[nn.Module, torch.Tensor]:
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(64, 4)), torch.randn(2, 3, 8, 8)


def _channels_last() -> tuple[nn.Module, torch.Tensor]:
    """Return layers whose dropout draws in the order of memory."""
    layers = (nn.ConvTranspose2d(3, 8, 1), nn.Dropout(0.2), nn.PixelShuffle(2), nn.LogSigmoid(), nn.Dropout(0.2))
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.Dropout(0.2), *layers, nn.Flatten(), nn.Linear(512, 4)), x


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    return nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=32, batch_first=True), torch.randn(2, 5, 16)


def _norms() -> tuple[nn.Module, torch.Tensor]:
    last = nn.LayerNorm(8)
    last.register_parameter("bias", None)  # As `bias=False` of torch 2.1.
    layers = (nn.GroupNorm(2, 4), nn.InstanceNorm1d(4), nn.BatchNorm1d(4, affine=False), last)
    return nn.Sequential(nn.Conv1d(4, 4, 1), *layers, nn.Flatten(), nn.Linear(32, 4)), torch.randn(6, 4, 8)


def _first_norms() -> tuple[nn.Module, torch.Tensor]:
    """Return norms of an input that has no gradient."""
    heads = nn.ModuleList([nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True), nn.GroupNorm(2, 4), nn.LayerNorm(8)])
    return _Sum(heads), torch.randn(6, 4, 8)


class _Sum(nn.Module):
    """Sum of modules of one input."""

    def __init__(self, heads: nn.ModuleList) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return torch.stack([head(x) for head in self.heads]).sum(0)


class _Recomputed(nn.Module):
    """Layers whose dropout is drawn again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the layers."""
        result: torch.Tensor = checkpoint.checkpoint(self.layers, x, use_reentrant=False)
        return result


_MODELS: Final[dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]]] = {
    "perceptron": _perceptron,
    "convolution": _convolution,
    "channels last": _channels_last,
    "transformer": _transformer,
    "norms": _norms,
    "first norms": _first_norms,
    "recomputed": lambda: (_Recomputed(), torch.randn(6, 8)),
}


def _train(name: str, precision: str) -> list[torch.Tensor]:
    """Return the state of a model, its last loss after three steps, and its output in evaluation, on the host."""
    torch.manual_seed(0)
    model, x = _MODELS[name]()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model.to("hpu", dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = x.to("hpu", dtype)
    loss = torch.zeros(1)
    for _ in range(3):
        with torch.autocast("hpu", dtype=torch.bfloat16, enabled=precision == "bf16 autocast"):
            loss = model(x).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [value.detach().cpu() for value in (loss, model.eval()(x), *model.state_dict().values())]


@pytest.mark.parametrize("precision", ["float32", "bf16", "bf16 autocast"])
@pytest.mark.parametrize("name", _MODELS)
def test_a_training_has_the_same_numbers_bit_for_bit(name: str, precision: str) -> None:
    if (name, precision) == ("recomputed", "bf16 autocast") and not hasattr(torch, "get_autocast_dtype"):
        pytest.skip("torch before 2.4 recomputes without the autocast of hpu")
    now = _train(name, precision)
    native().set_execution_mode("later")
    try:
        later = _train(name, precision)
    finally:
        native().wait_for_device()
        native().set_execution_mode("now")

    assert all(torch.equal(left, right) for left, right in zip(now, later, strict=True))


@pytest.mark.usefixtures("pipelined")
def test_a_new_seed_does_not_change_what_was_launched_before() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1000, device="hpu").cpu()

    torch.manual_seed(1)
    x = torch.rand(1000, device="hpu")
    torch.manual_seed(2)

    assert torch.equal(x.cpu(), expected)


@pytest.mark.usefixtures("pipelined")
def test_the_state_of_the_generator_is_that_after_all_draws() -> None:
    torch.manual_seed(1)
    before = torch.hpu.get_rng_state()  # type: ignore[attr-defined] # the bridge registers it
    torch.rand(1000, device="hpu")

    assert not torch.equal(torch.hpu.get_rng_state(), before)  # type: ignore[attr-defined] # as above


@pytest.mark.usefixtures("pipelined")
def test_the_program_may_change_a_number_of_the_host_after_the_call() -> None:
    number = torch.tensor(2.0)
    x = torch.ones(1_000_000, device="hpu").mul(number)
    number.fill_(3)

    assert x.unique().tolist() == [2]


@pytest.mark.usefixtures("pipelined")
def test_memory_that_the_program_frees_lives_until_its_operators_have_run() -> None:
    """And counts as free at once."""
    before = native().memory_stats()["in_use"]
    x = torch.ones(1_000_000, device="hpu")
    y = x.sum()
    del x

    assert native().memory_stats()["in_use"] - before < 4_000_000
    assert y.item() == 1_000_000


@pytest.mark.usefixtures("pipelined")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_results_have_the_dtype_of_this_call_and_not_of_one_like_it(dtype: torch.dtype) -> None:
    """The type of a number is part of what a Meta kernel is remembered by."""
    x = torch.ones(2, dtype=dtype, device="hpu")

    for number in (1, 1.5, 2, 2.5):
        assert (x + number).dtype == (torch.ones(2, dtype=dtype) + number).dtype


@pytest.mark.usefixtures("pipelined")
@pytest.mark.parametrize("numbers", [(2, 2.5), (2.5, 2)], ids=str)
def test_the_types_of_numbers_in_lists_count_too(numbers: tuple[float, float]) -> None:
    x = torch.ones(2, dtype=torch.int64)

    for number in numbers:
        (result,) = torch._foreach_mul([x.to("hpu")], [number])
        assert result.dtype == torch._foreach_mul([x], [number])[0].dtype


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Run the test with torch's deterministic algorithms."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("pipelined", "deterministic")
def test_deterministic_algorithms_stay_on_whatever_threads_launch() -> None:
    def launch(offset: int) -> None:
        for size in range(100):
            torch.ones(1000 * offset + size, device="hpu").exp()

    threads = [threading.Thread(target=launch, args=(offset,)) for offset in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.usefixtures("pipelined", "deterministic")
def test_an_operator_that_is_deterministic_on_the_cpu_alone_runs() -> None:
    """Its Meta kernel raises the alert of CUDA's."""
    assert torch.tensor([3.0, 1.0, 2.0], device="hpu").median(0).values.item() == 2
