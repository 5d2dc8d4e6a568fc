"""Lightning's loops on two simulated devices; the helper functions run on both ranks."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version

import hpu_sim
from hpu_core import frameworks
from hpu_ddp import HPUDDPStrategy
from hpu_testing.modules import BATCHES, Classifier, make_sharded_loader, parameter_bytes

from .conftest import OnRanks
from .modules import BATCH_SIZE, make_loader, make_trainer

_lightning = frameworks.current()
_callbacks = _lightning.pytorch("callbacks")


class BatchNormClassifier(Classifier):
    """Classifier with batch normalization of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(4), *self.net)


def _fit(module: Classifier, **options: Any) -> Classifier:
    """Train for an epoch and return the module; `options` are arguments of the Trainer."""
    make_trainer(**options).fit(module, make_loader(), make_loader())
    return module


def _sample_indices() -> tuple[list[int], bool]:
    class RecordingClassifier(Classifier):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            seen.extend(batch[0][:, 0].int().tolist())

    seen: list[int] = []
    count = BATCHES * BATCH_SIZE * 2
    points = torch.arange(count, dtype=torch.float32).view(-1, 1).expand(-1, 4)
    data = torch.utils.data.TensorDataset(points, torch.zeros(count, dtype=torch.long))
    trainer = make_trainer()
    trainer.fit(RecordingClassifier(), torch.utils.data.DataLoader(data, batch_size=BATCH_SIZE))
    return seen, isinstance(trainer.train_dataloader.sampler, torch.utils.data.DistributedSampler)


def test_distributed_sampler_partitions_the_data(on_ranks: OnRanks) -> None:
    (first, is_distributed_sampler), (second, _) = on_ranks(_sample_indices)

    assert is_distributed_sampler
    assert sorted(first + second) == list(range(BATCHES * BATCH_SIZE * 2))


def _collectives_per_batch(**options: Any) -> list[int]:
    class CollectiveCounter(_callbacks.Callback):  # type: ignore[misc, name-defined] # The class depends on the framework.
        def on_train_batch_start(self, *args: Any) -> None:
            self.before = hpu_sim.stats()["collectives"]

        def on_train_batch_end(self, *args: Any) -> None:
            counts.append(hpu_sim.stats()["collectives"] - self.before)

    counts: list[int] = []
    make_trainer(max_epochs=2, callbacks=[CollectiveCounter()], **options).fit(Classifier(), make_loader())
    return counts[BATCHES:]


def _collectives_while_accumulating() -> list[int]:
    return _collectives_per_batch(accumulate_grad_batches=3)


def _train_with_hook() -> tuple[list[object], bytes]:
    """Train with a hook and a wrapper that note their calls; return these of a step, and the weights."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    calls: list[object] = []

    def hook(state, bucket):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - torch wants its own types or none.
        calls.append(state)
        return allreduce_hook(None, bucket)  # type: ignore[arg-type] # None is the group of all ranks.

    def wrapper(inner: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def outer(state, bucket):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202 - as above.
            calls.append("wrapper")
            return inner(state, bucket)

        return outer

    strategy = HPUDDPStrategy(ddp_comm_state="state", ddp_comm_hook=hook, ddp_comm_wrapper=wrapper)
    module = _fit(Classifier(), strategy=strategy)
    return calls, parameter_bytes(module)


class _UsersStrategy(HPUDDPStrategy):
    def __init__(self, seen: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self.seen = seen

    def teardown(self) -> None:
        wrapped: Any = self.model
        self.seen += [wrapped._get_ddp_logging_data()["comm_hook"], int(wrapped.bucket_bytes_cap) >> 20]
        super().teardown()


def _train_with_users_strategy() -> list[Any]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    strategy = _UsersStrategy([], ddp_comm_hook=allreduce_hook)
    make_trainer(strategy=strategy).fit(Classifier(), make_loader())
    return strategy.seen


def _weights_after_one_epoch() -> bytes:
    return parameter_bytes(_fit(Classifier()))


def test_ddp_comm_hook_and_its_wrapper_replace_all_reduce(on_ranks: OnRanks) -> None:
    plain = on_ranks(_weights_after_one_epoch)
    results = on_ranks(_train_with_hook)

    assert [calls for calls, _ in results] == [["wrapper", "state"] * BATCHES] * 2
    assert [trained for _, trained in results] == plain


def _fit_and_evaluate() -> list[float]:
    module = Classifier()
    trainer = make_trainer()
    losses = [getattr(trainer, loop)(module, make_loader(), verbose=False)[0]["loss"] for loop in ("validate", "test")]
    trainer.fit(module, make_loader(), make_loader())
    return [*losses, trainer.test(module, make_loader(), verbose=False)[0]["loss"]]


def test_evaluation_averages_metrics_over_ranks(on_ranks: OnRanks) -> None:
    """Also after a training."""
    batch = tuple(torch.cat(parts) for parts in zip(*make_loader(), strict=True))
    expected = Classifier().compute_loss((batch[0], batch[1])).item()

    (validated, tested, trained), other = on_ranks(_fit_and_evaluate)

    assert [validated, tested] == pytest.approx([expected] * 2, abs=1e-6)
    assert other == [validated, tested, trained]
    assert trained < expected


def _train_batch_norm() -> tuple[list[float], str]:
    class RecordingClassifier(BatchNormClassifier):
        def on_train_start(self) -> None:
            kinds.append(type(self.net[0]).__name__)

    kinds: list[str] = []
    module = RecordingClassifier()
    trainer = make_trainer(sync_batchnorm=True, use_distributed_sampler=False)
    trainer.fit(module, make_sharded_loader(make_loader().dataset, 2 * BATCH_SIZE, trainer.global_rank, 2))
    mean: list[float] = module.state_dict()["net.0.running_mean"].tolist()
    return mean, kinds[0]


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.10"), reason="Requires: torch 2.10, whose SyncBatchNorm takes hpu tensors"
)
def test_sync_batchnorm(on_ranks: OnRanks) -> None:
    """The running means are those of single-device training with the whole batch."""
    batches = [batch[0] for batch in torch.utils.data.DataLoader(make_loader().dataset, batch_size=2 * BATCH_SIZE)]
    expected = torch.zeros(4)
    for batch in batches:
        expected = 0.9 * expected + 0.1 * batch.mean(0)

    results = on_ranks(_train_batch_norm)

    for mean, kind in results:
        assert kind == "SyncBatchNorm"
        assert torch.tensor(mean).allclose(expected, atol=1e-6)


def _ddp_options(**options: Any) -> tuple[int, bool, bool]:
    class RecordingClassifier(Classifier):
        def on_train_start(self) -> None:
            wrapped = self.trainer.strategy.model
            seen.append(
                (int(wrapped.bucket_bytes_cap) >> 20, wrapped.gradient_as_bucket_view, wrapped.find_unused_parameters)
            )

    seen: list[tuple[int, bool, bool]] = []
    make_trainer(strategy=HPUDDPStrategy(**options)).fit(RecordingClassifier(), make_loader())
    return seen[0]


def _custom_options() -> tuple[int, bool, bool]:
    return _ddp_options(bucket_cap_mb=10, gradient_as_bucket_view=False, find_unused_parameters=True)


def _memory_after_training() -> tuple[int, set[str]]:
    # Earlier tests on these ranks may have left uncollected tensors.
    gc.collect()
    before = hpu_sim.stats()["allocated_bytes"]
    module = _fit(Classifier())
    module.losses.clear()
    return hpu_sim.stats()["allocated_bytes"] - before, {parameter.device.type for parameter in module.parameters()}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(_collectives_while_accumulating, [0, 0, 1] * 2, id="accumulation skips all-reduce"),
        pytest.param(
            _train_with_users_strategy, ["allreduce_hook", 230], id="a user's subclass has its hook and methods"
        ),
        pytest.param(_ddp_options, (230, True, False), id="defaults of DDP"),
        pytest.param(_custom_options, (10, False, True), id="options override the defaults"),
        pytest.param(_memory_after_training, (0, {"cpu"}), id="teardown frees the memory"),
    ],
)
def test_result_on_each_rank(function: Callable[[], Any], expected: Any, on_ranks: OnRanks) -> None:
    assert on_ranks(function) == [expected] * 2


def _train_a_part_later() -> tuple[list[float], list[float]]:
    class Unfreezing(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.net.requires_grad_(False)
            self.head = torch.nn.Linear(2, 2)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss: torch.Tensor = self.head(self.net(batch[0])[:, :2]).square().mean()
            return loss

        def on_train_epoch_start(self) -> None:
            self.net.requires_grad_(self.current_epoch == 1)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Unfreezing()
    first = torch.nn.utils.parameters_to_vector(module.net.parameters()).tolist()
    make_trainer(max_epochs=3, max_steps=-1).fit(module, make_loader())
    return first, torch.nn.utils.parameters_to_vector(module.net.parameters()).cpu().tolist()


def test_a_part_that_is_trained_later_is_the_same_on_all_ranks(on_ranks: OnRanks) -> None:
    """Torch's DDP reduces what was trained when it wrapped the module; BackboneFinetuning unfreezes later."""
    (first, one), (_, other) = on_ranks(_train_a_part_later)

    assert one == other != first
