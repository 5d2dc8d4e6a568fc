"""Features of the Trainer and of Fabric on two simulated devices; the helper functions run on both ranks."""

from typing import Any
from unittest import mock

import pytest
import torch
import torchmetrics
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import wrap

from hpu_core import HPUAccelerator, SingleHPUStrategy, bridge, frameworks
from hpu_fsdp import FabricHPUFSDPStrategy, HPUFSDPStrategy
from hpu_fsdp import strategy as fsdp_strategy

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, Layer, Perceptron, make_loader, make_network, make_trainer, train

_lightning = frameworks.current()

STEPS = 6


def _fit(
    module: ImageClassifier, *, sharded: bool, options: dict[str, Any] | None = None, **trainer_options: Any
) -> list[float]:
    """Train on one device or with FSDP; return the losses."""
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), **(options or {})) if sharded else SingleHPUStrategy()
    trainer = make_trainer(strategy=strategy, devices=2 if sharded else 1, max_steps=STEPS, **trainer_options)
    if sharded:
        return train(module, trainer)
    trainer.fit(module, make_loader())
    return [float(loss) for loss in module.losses]


class WrappedClassifier(ImageClassifier):
    """Classifier that wraps its network itself."""

    def configure_model(self) -> None:
        """Wrap the network on the CPU."""
        if not isinstance(self.net, FullyShardedDataParallel):
            self.net = wrap(self.net)


class FrozenClassifier(ImageClassifier):
    """Classifier with frozen and trained parameters in each layer, as LoRA has."""

    def __init__(self) -> None:
        super().__init__()
        for layer in (0, 2, 4):
            self.net[layer].weight.requires_grad_(False)


def _compare() -> dict[str, tuple[list[float], list[float]]]:
    """Return the losses of one device and of FSDP, by feature."""
    features: dict[str, dict[str, Any]] = {
        "clipping": {"gradient_clip_val": 0.05},
        "accumulation": {"accumulate_grad_batches": 2},
    }
    losses = {
        name: (_fit(ImageClassifier(), sharded=False, **options), _fit(ImageClassifier(), sharded=True, **options))
        for name, options in features.items()
    }
    plain = _fit(ImageClassifier(), sharded=False)
    more: dict[str, dict[str, Any]] = {
        "activation checkpointing": {"activation_checkpointing_policy": {Layer}},
        "flat parameters": {"use_orig_params": False},
    }
    for name, options in more.items():
        losses[name] = (plain, _fit(ImageClassifier(), sharded=True, options=options))
    losses["accumulation with SHARD_GRAD_OP"] = (
        losses["accumulation"][0],
        _fit(
            ImageClassifier(), sharded=True, options={"sharding_strategy": "SHARD_GRAD_OP"}, accumulate_grad_batches=2
        ),
    )
    losses["frozen parameters"] = (_fit(FrozenClassifier(), sharded=False), _fit(FrozenClassifier(), sharded=True))
    trainer = make_trainer(strategy=HPUFSDPStrategy(), max_steps=STEPS)
    losses["own wrapping"] = (plain, train(WrappedClassifier(), trainer))
    return losses


@pytest.fixture(scope="module")
def compared(on_ranks: OnRanks) -> list[dict[str, tuple[list[float], list[float]]]]:
    """Losses of one device and of FSDP, by rank and feature."""
    return on_ranks(_compare, seconds=150)


def test_features_train_like_on_one_device(compared: list[dict[str, tuple[list[float], list[float]]]]) -> None:
    for rank in compared:
        for feature, (expected, losses) in rank.items():
            assert losses == pytest.approx(expected, abs=1e-5), feature


# `test_parity` trains with all sharding strategies in float32. A precision says what is gathered and reduced.
SHARDING: dict[str, dict[str, Any]] = {
    "FULL_SHARD": {},
    "NO_SHARD, offload": {"sharding_strategy": "NO_SHARD", "cpu_offload": True},
}
PRECISIONS = ("bf16-mixed", "bf16-true", "16-mixed", "16-true")


def _train_in_precision(precision: str) -> dict[str, tuple[list[float], torch.dtype]]:
    """Return the losses and the parameters' dtype, by sharding strategy."""
    results = {}
    for name, options in SHARDING.items():
        module = ImageClassifier()
        strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), **options)
        trainer = make_trainer(strategy=strategy, max_steps=4, precision=precision, gradient_clip_val=5.0)
        results[name] = train(module, trainer), next(module.parameters()).dtype
    return results


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_trains(precision: str, on_ranks: OnRanks, compared: Any) -> None:
    """Losses are near those of one device in float32. Mixed precision keeps float32 weights."""
    dtypes = {"bf16-true": torch.bfloat16, "16-true": torch.float16}
    expected = compared[0]["flat parameters"][0][:4]

    for results in on_ranks(_train_in_precision, precision):
        for name, (losses, dtype) in results.items():
            assert losses == pytest.approx(expected, rel=0.001), name
            assert dtype == dtypes.get(precision, torch.float32), name


def _materialize() -> tuple[str, str, int, bool]:
    """Train a module that is created on the meta device."""

    class Empty(ImageClassifier):
        def configure_model(self) -> None:
            with torch.device("meta"):
                self.net = Perceptron()

    module = Empty()
    trainer = make_trainer(strategy=HPUFSDPStrategy(auto_wrap_policy=set(UNITS)), max_steps=2)
    losses = train(module, trainer)
    parameter = next(trainer.model.parameters())
    return str(parameter.device), type(trainer.model).__name__, len(losses), losses[0] < 3


def test_module_on_the_meta_device_is_materialized(on_ranks: OnRanks) -> None:
    assert on_ranks(_materialize) == [("hpu:0", "FullyShardedDataParallel", 2, True)] * 2


class MeasuredClassifier(ImageClassifier):
    """Classifier with a metric among its modules."""

    def __init__(self) -> None:
        super().__init__()
        self.mean_loss = torchmetrics.MeanMetric()
        self.computed = 0.0

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss, scalar."""
        loss = super().training_step(batch, index)
        self.mean_loss.update(loss.detach())
        return loss

    def on_train_end(self) -> None:
        """Compute the metric over all ranks."""
        self.computed = float(self.mean_loss.compute())


def _train_with_metric() -> tuple[float, list[float]]:
    module = MeasuredClassifier()
    losses = train(module, make_trainer(strategy=HPUFSDPStrategy(auto_wrap_policy=set(UNITS)), max_steps=STEPS))
    return module.computed, losses


def test_metric_of_the_module_is_of_all_ranks(on_ranks: OnRanks) -> None:
    """It has no parameters to shard, and a method of torch's without `recurse`."""
    for computed, losses in on_ranks(_train_with_metric):
        assert computed == pytest.approx(sum(losses) / STEPS, abs=1e-5)


class _Fabric:
    """Training with Fabric's loop."""

    def __init__(self, **options: Any) -> None:
        strategy = FabricHPUFSDPStrategy(**{"auto_wrap_policy": set(UNITS), **options})
        self.fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), devices=2, strategy=strategy)
        self.fabric.launch()
        network = make_network()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        self.network, self.optimizer = self.fabric.setup(network, optimizer)

    def train(self, accumulate: int = 1, clip: float = 0.0) -> list[float]:
        """Return the losses, averaged over the ranks."""
        losses = []
        loader = make_loader(self.fabric.global_rank, 2)
        for index, (images, labels) in zip(range(STEPS), loader, strict=False):
            last = (index + 1) % accumulate == 0
            with self.fabric.no_backward_sync(self.network, enabled=not last):
                loss = torch.nn.functional.cross_entropy(self.network(images.to("hpu")), labels.to("hpu"))
                if index % accumulate == 0:
                    # After the forward pass, as many programs do it.
                    self.optimizer.zero_grad()
                self.fabric.backward(loss / accumulate)
            if last:
                if clip:
                    self.fabric.clip_gradients(self.network, self.optimizer, max_norm=clip)
                self.optimizer.step()
            losses.append(float(self.fabric.all_reduce(loss.detach())))
        return losses


def _train_with_fabric() -> dict[str, list[float]]:
    return {
        "plain": _Fabric().train(),
        "SHARD_GRAD_OP": _Fabric(sharding_strategy="SHARD_GRAD_OP").train(),
        "accumulation": _Fabric().train(accumulate=2),
        "clipping": _Fabric().train(clip=0.05),
    }


def test_fabric_trains_like_the_trainer(on_ranks: OnRanks, compared: Any) -> None:
    expected = {name: compared[0][name][0] for name in ("accumulation", "clipping", "flat parameters")}

    for losses in on_ranks(_train_with_fabric, seconds=120):
        assert losses["plain"] == pytest.approx(expected["flat parameters"], abs=1e-5)
        assert losses["SHARD_GRAD_OP"] == pytest.approx(losses["plain"], abs=1e-6)
        assert losses["accumulation"] == pytest.approx(expected["accumulation"][:STEPS], abs=1e-5)
        assert losses["clipping"] == pytest.approx(expected["clipping"], abs=1e-5)


def _train_lazily() -> str:
    with mock.patch.object(bridge, "is_lazy", return_value=True), pytest.raises(RuntimeError) as error:
        train(ImageClassifier(), make_trainer(strategy=HPUFSDPStrategy(), devices=1))
    return str(error.value)


def test_lazy_mode_is_refused_with_the_variable_to_set(on_ranks: OnRanks) -> None:
    [message] = on_ranks(_train_lazily, count=1)

    assert message.startswith("HPUFSDPStrategy needs eager mode, got lazy mode")
    assert message.endswith("set PT_HPU_LAZY_MODE=0 before the program starts")


_UNIT_BYTES = 2**20
_UNITS = 8


def _set_up_units() -> tuple[int, int, set[str]]:
    """Return the peak of the device's memory while units of 1 MiB are set up, the whole size, and their devices."""
    network = torch.nn.Sequential(*(Layer(512, 512, bias=False) for _ in range(_UNITS)), torch.nn.BatchNorm1d(512))
    whole = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    strategy = FabricHPUFSDPStrategy(auto_wrap_policy={Layer})
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), devices=2, strategy=strategy)
    fabric.launch()
    hpu: Any = torch.hpu  # type: ignore[attr-defined] # the bridge registers it.
    before = hpu.memory_allocated()
    hpu.reset_peak_memory_stats()
    sharded = fabric.setup_module(network)
    tensors = (*sharded.parameters(), *sharded.buffers())
    return hpu.max_memory_allocated() - before, whole, {tensor.device.type for tensor in tensors}


def test_units_are_moved_to_the_device_one_by_one(on_ranks: OnRanks) -> None:
    """What is created on the CPU needs the memory of the shards and of one unit, and the copy that torch shards."""
    for peak, whole, devices in on_ranks(_set_up_units):
        assert peak <= whole // 2 + 3 * _UNIT_BYTES
        assert whole > _UNITS * _UNIT_BYTES
        assert devices == {"hpu"}


def _clip_infinite(error_if_nonfinite: bool) -> tuple[str, bool]:
    """Clip gradients that are infinite on one rank; return the error, and whether the weights are finite."""
    run = _Fabric()
    scale = float("inf") if run.fabric.global_rank == 1 else 1.0
    run.fabric.backward(run.network(torch.ones(4, 64, device="hpu")).sum() * scale)
    try:
        run.fabric.clip_gradients(run.network, run.optimizer, max_norm=1.0, error_if_nonfinite=error_if_nonfinite)
    except RuntimeError as error:
        return str(error), all(bool(parameter.isfinite().all()) for parameter in run.network.parameters())
    return "", True


@pytest.mark.parametrize(("error_if_nonfinite", "text"), [(True, "is non-finite"), (False, "")])
def test_infinite_norm_is_an_error_on_all_ranks(error_if_nonfinite: bool, text: str, on_ranks: OnRanks) -> None:
    for error, is_finite in on_ranks(_clip_infinite, error_if_nonfinite):
        assert text in error
        assert bool(error) is error_if_nonfinite
        assert is_finite


def _notes() -> list[str]:
    """Return what a training says of the model summary."""
    with mock.patch.object(fsdp_strategy, "rank_zero_info") as info:
        _fit(ImageClassifier(), sharded=True)
    return [call.args[0] for call in info.call_args_list]


def test_summary_is_said_to_be_of_a_part(on_ranks: OnRanks) -> None:
    part = sum(parameter.numel() for parameter in ImageClassifier().parameters()) // 2

    for notes in on_ranks(_notes):
        assert [int(note.split()[4].replace(",", "")) for note in notes] == [pytest.approx(part, abs=2)]


class WithExample(ImageClassifier):
    """Classifier whose summary has the sizes of what its layers return."""

    def __init__(self) -> None:
        super().__init__()
        self.example_input_array = torch.zeros(2, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        scores: torch.Tensor = self.net(x)
        return scores


def _train_with_example() -> tuple[list[float], torch.Size]:
    module = WithExample()
    losses = _fit(module, sharded=True, enable_model_summary=True)
    # The module keeps its wrapper.
    _fit(module, sharded=True, enable_model_summary=True)
    return losses, module.example_input_array.shape


def test_module_with_an_example_trains(on_ranks: OnRanks, compared: Any) -> None:
    expected = compared[0]["flat parameters"][0]

    for losses, shape in on_ranks(_train_with_example):
        assert losses == pytest.approx(expected, abs=1e-5)
        assert shape == (2, 64)


class Forces(ImageClassifier):
    """Classifier whose loss has the gradient of its scores."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """Return the loss, scalar."""
        images = batch[0].requires_grad_()
        (forces,) = torch.autograd.grad(self.net(images).sum(), images, create_graph=True)
        loss: torch.Tensor = forces.square().mean()
        return loss


def _train_with_forces() -> None:
    with pytest.raises(NotImplementedError, match=r"no second derivatives.*reached its unit Layer"):
        _fit(Forces(), sharded=True)


def test_second_derivatives_are_refused(on_ranks: OnRanks) -> None:
    """Torch documents none for FSDP, and computes others silently."""
    on_ranks(_train_with_forces)
