"""Batches that a program draws, and the time in which the host fetches them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options

if TYPE_CHECKING:
    from hpu_sim.prediction.recording import Recording

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every batch take one second of processor time."""
    moments = itertools.count()
    monkeypatch.setattr("time.thread_time", lambda: float(next(moments)))


class _Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.rand(64, 4))


def _record(dataset: Any, options: Options | None = None, **kwargs: Any) -> Recording:
    def train() -> None:
        model = nn.Linear(4, 1).to("hpu")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in DataLoader(dataset, batch_size=4, **kwargs):
            inputs = batch[0] if isinstance(batch, list) else batch
            model(inputs.to("hpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return record_call(train, options or Options())


_SAMPLES = TensorDataset(torch.rand(64, 4))


def test_the_step_contains_the_time_to_fetch_its_batch() -> None:
    step = _record(_SAMPLES).steady

    assert (step.loader_seconds, step.worker_seconds) == (1.0, 0.0)


def test_workers_share_the_work() -> None:
    step = _record(_SAMPLES, num_workers=2).steady

    assert (step.loader_seconds, step.worker_seconds) == (0.0, 0.5)


def test_a_larger_batch_takes_as_much_longer() -> None:
    assert _record(_SAMPLES, Options(batch_size=32)).steady.loader_seconds == pytest.approx(8.0)


def test_a_stream_of_samples_has_no_known_time() -> None:
    recording = _record(_Stream())

    assert recording.steady.loader_seconds == 0
    assert any("time to fetch a batch is not known" in each for each in recording.notes)
