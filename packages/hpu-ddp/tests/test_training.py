"""Lightning's loops on two simulated cards: each `_function` runs on both ranks, a test looks at what they return."""

import csv
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version

import hpu_sim
from hpu_core import SingleHPUStrategy, frameworks
from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy

from .conftest import OnRanks
from .modules import BATCH_SIZE, BATCHES, Classifier, dealt, loader, numbers, trainer, weights

_lightning = frameworks.current()
_callbacks = _lightning.pytorch("callbacks")


class ManualClassifier(Classifier):
    """Optimizes each layer by its own optimizer, by hand: both losses first, then a step for the one and the other."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Take both steps."""
        loss = self.loss(batch)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        """Return one optimizer for each layer."""
        return [torch.optim.SGD(self.net[layer].parameters(), lr=0.1) for layer in (0, 2)]


class Steady(Classifier):
    """Takes steps as long as the gradient, so that its last digit does not decide where they go."""

    def configure_optimizers(self) -> Any:
        """Return an optimizer without adaptive steps."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Partial(Classifier):
    """Has a layer that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = torch.nn.Linear(4, 4)


class Normalized(Classifier):
    """Normalizes its input over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(4), *self.net)


def _fit(module: Classifier, **options: Any) -> Classifier:
    """Train for an epoch with a strategy of the name's and the options' making."""
    trainer(**options).fit(module, loader(), loader())
    return module


def _weights_after(kind: str) -> bytes:
    strategies = {"hpu_parallel": HPUParallelStrategy, "hpu_ddp": HPUDDPStrategy}
    return weights(_fit(Classifier(), strategy=strategies[kind](), max_epochs=3))


@pytest.mark.parametrize("kind", ["hpu_parallel", "hpu_ddp"])
def test_all_ranks_have_the_same_weights(kind: str, on_ranks: OnRanks) -> None:
    """After training, every bit of every weight is the same on all ranks, though each saw other data."""
    first, second = on_ranks(_weights_after, kind)

    assert first == second
    assert first != weights(Classifier())


def _losses() -> list[float]:
    return numbers(_fit(Classifier()).losses)


def test_each_rank_has_its_own_data(on_ranks: OnRanks) -> None:
    """The sampler deals the data out: no rank sees another's losses."""
    first, second = on_ranks(_losses)

    assert len(first) == len(second) == BATCHES
    assert not set(first) & set(second)


def _samples() -> tuple[list[int], bool]:
    class Noting(Classifier):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            seen.extend(batch[0][:, 0].int().tolist())

    seen: list[int] = []
    count = BATCHES * BATCH_SIZE * 2
    points = torch.arange(count, dtype=torch.float32).view(-1, 1).expand(-1, 4)
    data = torch.utils.data.TensorDataset(points, torch.zeros(count, dtype=torch.long))
    run = trainer()
    run.fit(Noting(), torch.utils.data.DataLoader(data, batch_size=BATCH_SIZE))
    return seen, isinstance(run.train_dataloader.sampler, torch.utils.data.DistributedSampler)


def test_the_data_are_dealt_out_once(on_ranks: OnRanks) -> None:
    """Together the ranks see each sample once, by torch's sampler for distributed training."""
    (first, is_torchs), (second, _) = on_ranks(_samples)

    assert is_torchs
    assert sorted(first + second) == list(range(BATCHES * BATCH_SIZE * 2))


def _on_one_card(batch_size: int, epochs: int, options: dict[str, Any]) -> bytes:
    """Train on one card with all data, in batches as large as those of both ranks together."""
    module = Steady()
    data = torch.utils.data.DataLoader(loader().dataset, batch_size=batch_size)
    trainer(strategy=SingleHPUStrategy(), devices=1, max_epochs=epochs, **options).fit(module, data)
    return weights(module)


def _distance(options: dict[str, Any], accumulated: int = 1) -> float:
    """Return how far the weights of two ranks are from those of one card that saw the same."""
    module = Steady()
    run = trainer(max_epochs=2, use_distributed_sampler=False, **options)
    run.fit(module, dealt(loader(), run.global_rank, 2))
    alone = _on_one_card(BATCH_SIZE * 2 * accumulated, 2, {})
    difference = torch.frombuffer(bytearray(weights(module)), dtype=torch.float32) - torch.frombuffer(
        bytearray(alone), dtype=torch.float32
    )
    return float(difference.abs().max())


def test_two_ranks_train_like_one_card(on_ranks: OnRanks) -> None:
    """Averaged gradients of two halves of a batch are those of the whole."""
    assert max(on_ranks(_distance, {})) < 1e-6


def test_accumulation_trains_like_larger_batches(on_ranks: OnRanks) -> None:
    """Gradients of several batches, added up on each rank and averaged once, are those of one larger batch."""
    assert max(on_ranks(_distance, {"accumulate_grad_batches": 2}, 2)) < 1e-6


def _collectives_per_batch(**options: Any) -> list[int]:
    class Counting(_callbacks.Callback):  # type: ignore[misc, name-defined] # The class depends on what is installed.
        def on_train_batch_start(self, *args: Any) -> None:
            self.before = hpu_sim.stats()["collectives"]

        def on_train_batch_end(self, *args: Any) -> None:
            counts.append(hpu_sim.stats()["collectives"] - self.before)

    counts: list[int] = []
    trainer(max_epochs=2, callbacks=[Counting()], **options).fit(Classifier(), loader())
    return counts[BATCHES:]


def _collectives_while_accumulating() -> list[int]:
    return _collectives_per_batch(accumulate_grad_batches=3)


def test_accumulation_exchanges_nothing_in_between(on_ranks: OnRanks) -> None:
    """Only the last of the batches that are accumulated averages gradients."""
    assert on_ranks(_collectives_while_accumulating) == [[0, 0, 1] * 2] * 2


def _manual() -> tuple[list[float], bytes]:
    module = _fit(ManualClassifier(), max_epochs=3)
    return numbers(module.losses), weights(module)


def test_manual_optimisation_trains(on_ranks: OnRanks) -> None:
    """Gradients of `manual_backward` are averaged like any other."""
    (losses, first), (_, second) = on_ranks(_manual)

    assert first == second
    assert losses[-1] < losses[0]


def _unused(find: bool) -> bytes | str:
    try:
        strategy = HPUDDPStrategy(find_unused_parameters=find)
        return weights(_fit(Partial(), strategy=strategy))
    except RuntimeError as error:
        return "".join([str(error), *getattr(error, "__notes__", ())])


def test_unused_parameters_are_found(on_ranks: OnRanks) -> None:
    """Asked to, the strategy trains a module of which the loss leaves out a layer."""
    first, second = on_ranks(_unused, True)

    assert isinstance(first, bytes)
    assert len(first) == len(weights(Partial()))
    assert len(second) == len(first)


def _hooked(wrap: bool) -> tuple[int, object, bytes]:
    """Train with a hook that counts its calls; return them, the state it got, and the weights."""
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

    strategy = HPUDDPStrategy(ddp_comm_state="state", ddp_comm_hook=hook, ddp_comm_wrapper=wrapper if wrap else None)
    module = _fit(Classifier(), strategy=strategy)
    return len(calls), calls[0], weights(module)


def test_a_comm_hook_averages_the_gradients(on_ranks: OnRanks) -> None:
    """A hook takes the place of the averaging, once per step, and gets its state."""
    plain = on_ranks(_weights_after_one_epoch)
    results = on_ranks(_hooked, False)

    assert [(calls, state) for calls, state, _ in results] == [(BATCHES, "state")] * 2
    assert [trained for _, _, trained in results] == plain


def _weights_after_one_epoch() -> bytes:
    return weights(_fit(Classifier()))


def test_a_comm_wrapper_wraps_the_hook(on_ranks: OnRanks) -> None:
    """The wrapper is called first, and calls the hook."""
    results = on_ranks(_hooked, True)

    assert [(calls, first) for calls, first, _ in results] == [(2 * BATCHES, "wrapper")] * 2


def _average_models(period: int) -> list[bytes]:
    """Train with post-local SGD from the first step on; return the weights after each step."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

    class Noting(Classifier):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.append(weights(self))

    seen: list[bytes] = []
    # Each rank is a group of its own, in which gradients are "averaged"; only the models meet.
    alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    strategy = HPUDDPStrategy(
        ddp_comm_state=PostLocalSGDState(None, alone, start_localSGD_iter=0, post_local_gradient_allreduce=True),
        ddp_comm_hook=post_localSGD_hook,
        model_averaging_period=period,
    )
    _fit(Noting(), strategy=strategy)
    return seen


def test_models_are_averaged_by_period(on_ranks: OnRanks) -> None:
    """With post-local SGD, ranks train apart and have the same weights after every second step."""
    on_ranks(_weights_after_one_epoch)  # So that there is a process group to make smaller ones of.
    first, second = on_ranks(_average_models, 2)

    same = [ours == theirs for ours, theirs in zip(first, second, strict=True)]
    assert same == [True, False] * (BATCHES // 2)


def _evaluate(loop: str) -> list[dict[str, float]]:
    results: list[dict[str, float]] = getattr(trainer(), loop)(Classifier(), loader(), verbose=False)
    return results


@pytest.mark.parametrize("loop", ["validate", "test"])
def test_evaluation_averages_over_the_ranks(loop: str, on_ranks: OnRanks) -> None:
    """All ranks log the mean over all data."""
    batch = tuple(torch.cat(parts) for parts in zip(*loader(), strict=True))
    expected = Classifier().loss((batch[0], batch[1])).item()

    results = on_ranks(_evaluate, loop)

    assert [result[0]["loss"] for result in results] == pytest.approx([expected] * 2, abs=1e-6)


def _predict() -> list[list[float]]:
    scores = trainer().predict(Classifier(), loader())
    flat: list[list[float]] = torch.cat(scores).tolist()
    return flat


def test_prediction_is_dealt_out(on_ranks: OnRanks) -> None:
    """Each rank predicts its share, every second sample."""
    with torch.no_grad():
        expected = torch.cat([Classifier().predict_step(batch, 0) for batch in loader()])

    first, second = on_ranks(_predict)

    assert torch.tensor(first).allclose(expected[0::2], atol=1e-6)
    assert torch.tensor(second).allclose(expected[1::2], atol=1e-6)


def _resume(folder: str, resumed: bool) -> tuple[list[float], bytes]:
    """Train for two epochs, in one go or from the first one's checkpoint."""
    module = Classifier()
    saving = _callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
    run = trainer(max_epochs=2, enable_checkpointing=True, callbacks=[saving])
    run.fit(module, loader(), ckpt_path=str(Path(folder) / "epoch=0.ckpt") if resumed else None)
    return numbers(module.losses), weights(module)


def test_training_resumes(on_ranks: OnRanks, tmp_path: Path) -> None:
    """From a checkpoint of the first epoch, every rank takes the same second one as without a break."""
    whole = on_ranks(_resume, str(tmp_path), False)
    resumed = on_ranks(_resume, str(tmp_path), True)

    for (losses, trained), (later_losses, later_trained) in zip(whole, resumed, strict=True):
        assert later_losses == losses[BATCHES:]
        assert later_trained == trained


def _checkpoints(folder: str) -> tuple[str, list[str]]:
    saving = _callbacks.ModelCheckpoint(folder, filename="best", monitor="loss", save_last=True)
    run = trainer(max_epochs=2, enable_checkpointing=True, callbacks=[saving])
    run.fit(Classifier(), loader(), loader())
    # Rank 0 may still write the last one.
    run.strategy.barrier()
    return saving.best_model_path, sorted(path.name for path in Path(folder).iterdir())


def test_one_rank_writes_checkpoints(on_ranks: OnRanks, tmp_path: Path) -> None:
    """All ranks know the path of the best one, and none has written another."""
    results = on_ranks(_checkpoints, str(tmp_path))

    assert results == [(str(tmp_path / "best.ckpt"), ["best.ckpt", "last.ckpt"])] * 2


def test_a_checkpoint_is_of_the_cpu(on_ranks: OnRanks, tmp_path: Path) -> None:
    """It loads without a card, though it was written from one."""
    on_ranks(_checkpoints, str(tmp_path))

    state = torch.load(tmp_path / "last.ckpt", weights_only=False)["state_dict"]
    assert {value.device.type for value in state.values()} == {"cpu"}


class _Stopping(Classifier):
    """Logs a value, each rank its own, that for rank 1 alone is no improvement."""

    def on_validation_epoch_end(self) -> None:
        """Log it."""
        epoch = float(self.current_epoch)
        self.log("value", -epoch if self.global_rank == 0 else epoch)


def _stop_early() -> int:
    stopping = _callbacks.EarlyStopping("value", patience=1)
    run = trainer(max_epochs=10, callbacks=[stopping], num_sanity_val_steps=0)
    run.fit(_Stopping(), loader(), loader())
    epochs: int = run.current_epoch
    return epochs


def test_a_rank_stops_all(on_ranks: OnRanks) -> None:
    """Where early stopping ends one rank's training, it ends all ranks' in the same epoch."""
    assert on_ranks(_stop_early) == [2, 2]


def _monitor(folder: str) -> list[str]:
    logger = _lightning.pytorch("loggers").CSVLogger(folder)
    monitor = _callbacks.LearningRateMonitor(logging_interval="step")
    run = trainer(logger=logger, callbacks=[monitor], log_every_n_steps=1)
    run.fit(Classifier(), loader())
    if not run.is_global_zero:
        return []
    with Path(logger.log_dir, "metrics.csv").open() as rows:
        return [row["lr-Adam"] for row in csv.DictReader(rows) if row["lr-Adam"]]


def test_the_learning_rate_is_logged_once(on_ranks: OnRanks, tmp_path: Path) -> None:
    """LearningRateMonitor writes one value per step, by rank 0."""
    assert on_ranks(_monitor, str(tmp_path)) == [["0.05"] * BATCHES, []]


def _normalize() -> tuple[list[float], str]:
    class Looking(Normalized):
        def on_train_start(self) -> None:
            kinds.append(type(self.net[0]).__name__)

    kinds: list[str] = []
    module = Looking()
    run = trainer(sync_batchnorm=True, use_distributed_sampler=False)
    run.fit(module, dealt(loader(), run.global_rank, 2))
    mean: list[float] = module.state_dict()["net.0.running_mean"].tolist()
    return mean, kinds[0]


@pytest.mark.skipif(
    Version(torch.__version__) < Version("2.10"), reason="Requires: torch 2.10, whose SyncBatchNorm takes hpu tensors"
)
def test_batches_are_normalized_together(on_ranks: OnRanks) -> None:
    """With `sync_batchnorm`, a batch is what all ranks have of it: the running means are those of one large batch."""
    batches = [batch[0] for batch in torch.utils.data.DataLoader(loader().dataset, batch_size=2 * BATCH_SIZE)]
    expected = torch.zeros(4)
    for batch in batches:
        expected = 0.9 * expected + 0.1 * batch.mean(0)

    results = on_ranks(_normalize)

    for mean, kind in results:
        assert kind == "SyncBatchNorm"
        assert torch.tensor(mean).allclose(expected, atol=1e-6)


def _options_of(**options: Any) -> tuple[int, bool, bool]:
    class Looking(Classifier):
        def on_train_start(self) -> None:
            wrapped = self.trainer.strategy.model
            seen.append(
                (int(wrapped.bucket_bytes_cap) >> 20, wrapped.gradient_as_bucket_view, wrapped.find_unused_parameters)
            )

    seen: list[tuple[int, bool, bool]] = []
    trainer(strategy=HPUDDPStrategy(**options)).fit(Looking(), loader())
    return seen[0]


def _options_by_default() -> tuple[int, bool, bool]:
    return _options_of()


def _options_by_choice() -> tuple[int, bool, bool]:
    return _options_of(bucket_cap_mb=10, gradient_as_bucket_view=False, find_unused_parameters=True)


def test_ddp_has_intels_defaults(on_ranks: OnRanks) -> None:
    """Buckets of 230 MiB that hold the gradients, and no look-out for unused parameters."""
    assert on_ranks(_options_by_default) == [(230, True, False)] * 2


def test_ddps_options_are_the_users(on_ranks: OnRanks) -> None:
    """Each default can be overridden."""
    assert on_ranks(_options_by_choice) == [(10, False, True)] * 2


def _memory_afterwards() -> tuple[int, set[str]]:
    # What earlier tests on these ranks have left to be collected.
    gc.collect()
    before = hpu_sim.stats()["allocated_bytes"]
    module = _fit(Classifier())
    module.losses.clear()
    return hpu_sim.stats()["allocated_bytes"] - before, {parameter.device.type for parameter in module.parameters()}


def test_teardown_frees_the_card(on_ranks: OnRanks) -> None:
    """Afterwards the module is on the CPU, and nothing of the training is left in the card's memory."""
    assert on_ranks(_memory_afterwards) == [(0, {"cpu"})] * 2


def _root_device() -> tuple[str, int | None]:
    device = trainer().strategy.root_device
    return device.type, device.index


def test_the_root_device_has_no_index(on_ranks: OnRanks) -> None:
    """Every rank sees its card as "hpu"."""
    assert on_ranks(_root_device) == [("hpu", None)] * 2


class DeviceRecorder(Classifier):
    """Classifier that compares its device with those of its batches."""

    comparisons: set[bool]

    def on_train_batch_start(self, batch: tuple[torch.Tensor, ...], batch_idx: int) -> None:
        self.comparisons |= {tensor.device == self.device for tensor in (*batch, *self.parameters())}


def _device_comparisons() -> set[bool]:
    module = DeviceRecorder()
    module.comparisons = set()
    _fit(module)
    return module.comparisons


def test_the_device_of_the_module_is_that_of_its_tensors(on_ranks: OnRanks) -> None:
    assert on_ranks(_device_comparisons) == [{True}] * 2


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_a_module_can_be_made_on_the_card(on_ranks: OnRanks) -> None:
    """`Trainer.init_module` makes the weights where they are needed."""
    assert on_ranks(_devices_of_a_new_module) == [{"hpu"}] * 2


def _devices_of_a_new_module() -> set[str]:
    with trainer().init_module():
        module = Classifier()
    return {parameter.device.type for parameter in module.parameters()}


def _fit_then_test() -> float:
    module = Classifier()
    run = trainer()
    run.fit(module, loader(), loader())
    loss: float = run.test(module, loader(), verbose=False)[0]["loss"]
    return loss


def test_a_trainer_may_do_several_things(on_ranks: OnRanks) -> None:
    """Fitting and then testing with one Trainer gives all ranks the same result."""
    first, second = on_ranks(_fit_then_test)

    assert first == second


def _state_of_trainer() -> list[bool]:
    run = trainer()
    run.fit(Classifier(), loader())
    connector, loop = run._signal_connector, run.fit_loop.epoch_loop
    return ["_sigterm_notifier_fn" in vars(connector), "_broadcast_sigterm_tensor" in vars(loop)]


def test_the_trainer_is_left_as_it_was(on_ranks: OnRanks) -> None:
    """What stands in for Lightning's SIGTERM handling during a training is gone after it."""
    assert on_ranks(_state_of_trainer) == [[False, False]] * 2
