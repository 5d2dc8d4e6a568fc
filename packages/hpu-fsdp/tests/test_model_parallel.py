"""FSDP2 and tensor parallelism on two simulated devices; the helper functions run on both ranks."""

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import _random
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import hpu_fsdp
from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks
from hpu_fsdp import FabricHPUModelParallelStrategy, HPUModelParallelStrategy, _torch
from hpu_fsdp._lightning import FabricModelParallelStrategy, ModelParallelStrategy

from .conftest import OnRanks
from .modules import ImageClassifier, Layer, make_loader, make_network, make_trainer, train

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

_lightning = frameworks.current()
STEPS = 6
PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def shard(network: Any, mesh: Any, *, reshard: bool = False) -> Any:
    """Shard a perceptron over both dimensions of a mesh."""
    if mesh["tensor_parallel"].size() > 1:
        parallelize_module(network, mesh["tensor_parallel"], PLAN)
    data = mesh["data_parallel"]
    if data.size() > 1:
        for layer in network:
            if isinstance(layer, Layer):
                fully_shard(layer, mesh=data, reshard_after_forward=reshard)
        fully_shard(network, mesh=data, reshard_after_forward=reshard)
    return network


class Sharded(ImageClassifier):
    """Classifier that shards itself."""

    _is_sharded = False

    def configure_model(self) -> None:
        """Shard the network, once."""
        if not self._is_sharded:
            shard(self.net, self.device_mesh)
            self._is_sharded = True


def _strategy(data: int, **options: Any) -> HPUModelParallelStrategy:
    return HPUModelParallelStrategy(data_parallel_size=data, tensor_parallel_size=2 // data, **options)


def _fit(  # noqa: PLR0913, PLR0917 - what the tests vary.
    module: ImageClassifier,
    strategy: Any,
    steps: int = STEPS,
    folder: Path | None = None,
    clip: float | None = None,
    plugins: tuple[Any, ...] = (),
    **options: Any,
) -> tuple[list[float], Any]:
    """Train, saving each epoch of two steps in `folder`; return the losses and the Trainer."""
    checkpoint = _lightning.pytorch("callbacks").ModelCheckpoint
    callbacks = [checkpoint(folder, every_n_train_steps=2, filename="{step}")] if folder else []
    trainer = make_trainer(
        strategy=strategy,
        max_steps=steps,
        limit_train_batches=2,
        gradient_clip_val=clip,
        plugins=[*plugins],
        callbacks=callbacks,
        enable_checkpointing=folder is not None,
    )
    tensor_parallel = strategy._tensor_parallel_size > 1
    rank = 0 if tensor_parallel else trainer.global_rank
    trainer.fit(module, make_loader(rank, 1 if tensor_parallel else 2), **options)
    losses = trainer.strategy.reduce(torch.stack(module.losses), reduce_op="mean")
    return [float(loss) for loss in losses], trainer


def _fit_on_one_device(optimizer: str, clip: float | None = None) -> list[float]:
    module = ImageClassifier(optimizer=optimizer)
    options = {"max_steps": STEPS, "limit_train_batches": 2, "gradient_clip_val": clip}
    make_trainer(strategy=SingleHPUStrategy(), devices=1, **options).fit(module, make_loader())
    return [float(loss) for loss in module.losses]


def _train_and_resume(folder: Path) -> dict[str, Any]:
    """Return losses by kind of parallelism and of checkpoint."""
    results: dict[str, Any] = {"sgd": _fit_on_one_device("sgd"), "adamw": _fit_on_one_device("adamw")}
    results["FSDP2"] = _fit(Sharded(), _strategy(2))[0]
    results["tensor parallel"] = _fit(Sharded(), _strategy(1))[0]
    plugin = _lightning.pytorch("plugins.precision").HalfPrecision("bf16-true")
    results["bf16-true"] = _fit(Sharded(), _strategy(2), plugins=(plugin,))[0]
    results["clipping"] = (_fit_on_one_device("sgd", clip=0.05), _fit(Sharded(), _strategy(2), clip=0.05)[0])
    kinds: dict[str, dict[str, Any]] = {
        "distributed": {},
        "one file": {"save_distributed_checkpoint": False},
        "async": {"async_save": True},
    }
    for name, options in kinds.items():
        _fit(Sharded(optimizer="adamw"), _strategy(2, **options), steps=4, folder=folder / name)
        saved = folder / name / "step=4.ckpt"
        resumed = Sharded(optimizer="adamw")
        results[name] = _fit(resumed, _strategy(2), ckpt_path=saved)[0]
        results[f"{name} files"] = sorted(path.name for path in (folder / name).iterdir())
    return results


@pytest.fixture(scope="module")
def trained(on_ranks: OnRanks, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of `_train_and_resume`, by rank."""
    return on_ranks(_train_and_resume, tmp_path_factory.mktemp("checkpoints"), seconds=150)


@pytest.mark.parametrize("kind", ["FSDP2", "tensor parallel"])
def test_two_ranks_train_like_one_device(kind: str, trained: list[dict[str, Any]]) -> None:
    for rank in trained:
        assert rank[kind] == pytest.approx(rank["sgd"], abs=1e-5)


def test_bf16_trains_like_one_device_in_float32(trained: list[dict[str, Any]]) -> None:
    for rank in trained:
        assert rank["bf16-true"] == pytest.approx(rank["sgd"], rel=0.01)
        assert rank["bf16-true"] != pytest.approx(rank["sgd"], abs=1e-5)


def test_gradients_are_clipped_by_their_norm_over_all_ranks(trained: list[dict[str, Any]]) -> None:
    for rank in trained:
        expected, losses = rank["clipping"]
        assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["distributed", "one file", "async"])
def test_training_resumes(kind: str, trained: list[dict[str, Any]]) -> None:
    for rank in trained:
        assert rank[kind] == pytest.approx(rank["adamw"][4:], abs=1e-5)
        assert rank[f"{kind} files"] == ["step=4.ckpt"]


class Evaluated(Sharded):
    """Classifier that can be tested."""

    def test_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log the loss."""
        self.log("loss", self.training_step(batch, index), sync_dist=True)


def _test_weights_after_fit(path: Path, options: dict[str, Any]) -> tuple[float, float, int]:
    """Save the weights of a training; return its loss, that of the loaded weights, and the number of its optimizers."""
    module = Evaluated(optimizer="adamw")
    _, trainer = _fit(module, _strategy(2, **options), steps=2)
    trainer.save_checkpoint(path, weights_only=True)
    loader = make_loader(trainer.global_rank, 2)
    [trained] = trainer.test(module, loader)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    [loaded] = trainer.test(module, loader, ckpt_path=path)
    return trained["loss"], loaded["loss"], len(trainer.strategy.optimizers)


@pytest.mark.parametrize("options", [{}, {"save_distributed_checkpoint": False}], ids=["distributed", "one file"])
def test_weights_without_optimizer_states_are_tested_after_fit(
    options: dict[str, Any], tmp_path: Path, on_ranks: OnRanks
) -> None:
    for trained, loaded, optimizers in on_ranks(_test_weights_after_fit, tmp_path / "weights", options, seconds=100):
        assert loaded == pytest.approx(trained, abs=1e-6)
        assert optimizers == 1


class Unsharded(ImageClassifier):
    """Classifier that shards nothing."""

    def configure_model(self) -> None:
        """Do nothing."""


def _refuse_unsharded() -> str:
    with pytest.raises(ValueError, match="sharded") as error:
        train(Unsharded(), make_trainer(strategy=_strategy(2, failure_detection=False)))
    return str(error.value)


def test_modules_without_sharded_parameters_are_refused(on_ranks: OnRanks) -> None:
    for error in on_ranks(_refuse_unsharded):
        assert error.startswith("the module must have sharded parameters, got Unsharded without any")


def _train_with_fabric(path: Path) -> tuple[list[float], list[float], int]:
    """Return the losses, and those after loading."""
    losses: list[list[float]] = []
    state: dict[str, Any] = {"step": STEPS}
    for name in ("first", "second"):
        fabric = _lightning.fabric().Fabric(
            accelerator=HPUAccelerator(),
            devices=2,
            strategy=FabricHPUModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1),
        )
        fabric.launch()
        network = fabric.setup_module(make_network())
        optimizer = fabric.setup_optimizers(torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9))
        if name == "second":
            state = {"model": network, "optimizer": optimizer, "step": 0}
            fabric.load(path, state)
        losses.append([])
        batches = itertools.islice(itertools.cycle(itertools.islice(make_loader(fabric.global_rank, 2), 2)), STEPS)
        for images, labels in batches:
            loss = torch.nn.functional.cross_entropy(network(images.to("hpu")), labels.to("hpu"))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(float(fabric.all_reduce(loss.detach())))
        if name == "first":
            fabric.save(path, {"model": network, "optimizer": optimizer, **state})
    return losses[0], losses[1], int(state["step"])


def test_fabric_trains_like_the_trainer(tmp_path: Path, on_ranks: OnRanks, trained: list[dict[str, Any]]) -> None:
    for first, second, step in on_ranks(_train_with_fabric, tmp_path / "sharded"):
        assert first == pytest.approx(trained[0]["sgd"], abs=1e-5)
        assert second[0] < first[-2]
        assert step == STEPS


def test_replacement_keeps_the_arguments_of_lightnings_strategy() -> None:
    ours = HPUModelParallelStrategy.from_lightning(
        ModelParallelStrategy(data_parallel_size=4, tensor_parallel_size=2, save_distributed_checkpoint=False)
    )
    fabrics = FabricHPUModelParallelStrategy.from_lightning(FabricModelParallelStrategy(shard, data_parallel_size=4))

    assert (ours._data_parallel_size, ours._tensor_parallel_size, ours.saves_sharded) == (4, 2, False)
    assert (fabrics._user_parallelize_fn, fabrics._data_parallel_size) == (shard, 4)


def test_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.6.0a0+git1234")

    with pytest.raises(ImportError, match=r"needs .* torch 2.9, which comes with SynapseAI 1.23, .* and 2.6.0a0"):
        HPUModelParallelStrategy()


def _launch_fabric() -> Any:
    strategy = FabricHPUModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1)
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), devices=2, strategy=strategy)
    fabric.launch()
    return fabric


def _materialize_with_fabric() -> tuple[str, list[Any], list[Any]]:
    """Set up a network on the meta device; return its device, its first weights and this rank's shard of them."""
    fabric = _launch_fabric()
    torch.manual_seed(11)
    with fabric.init_module(empty_init=True):
        network = make_network()
    weight = next(fabric.setup_module(network).parameters())
    return str(weight.device), weight.full_tensor().tolist(), weight.to_local().tolist()


def test_sharded_module_is_initialized_on_every_rank(on_ranks: OnRanks) -> None:
    """Ranks draw different numbers for their shards of the same parameter."""
    (device, whole, shard), (other_device, other_whole, other_shard) = on_ranks(_materialize_with_fabric)

    assert device == other_device == "hpu:0"
    assert whole == other_whole == shard + other_shard
    assert shard != other_shard


def _initialize_shards() -> tuple[str, list[float]]:
    """Return the device of a weight that was initialized after sharding, and the gathered weight."""
    created = not dist.is_initialized()
    if created:
        dist.init_process_group("hccl")
    try:
        with mock.patch.object(_random, "_rng_tracker", None):
            hpu_fsdp.patch_dtensor_random()
            with torch.device("meta"):
                layer = torch.nn.Linear(2, 4, bias=False)
            fully_shard(layer)
            layer.to_empty(device="hpu")
            weight: Any = torch.nn.init.uniform_(layer.weight, 1, 2)
            return str(weight.to_local().device), weight.full_tensor().flatten().tolist()
    finally:
        _torch.patches.close()
        if created:
            dist.destroy_process_group()


def test_end_of_a_strategy_restores_torch() -> None:
    """Other DTensors of the process are not the strategy's affair."""
    helper = _random._resolve_device
    hpu_fsdp.patch_dtensor_random()
    replaced = _random._resolve_device
    _torch.patches.close()

    assert replaced is not helper
    assert _random._resolve_device is helper


def test_sharded_weights_are_initialized_without_lightning(on_ranks: OnRanks) -> None:
    """On rank 1, torch would use hpu:1."""
    devices, weights = zip(*on_ranks(_initialize_shards), strict=True)

    assert devices == ("hpu:0", "hpu:0")
    assert weights[0] == weights[1]
    assert len({*weights[0]}) == 8


def test_torch_has_the_private_name() -> None:
    """The device of a DTensor's random numbers."""
    assert callable(_random._resolve_device)
