"""Fit, test and fit again with one module: the losses of DDP, or a refusal that names what differs."""

from typing import Any

import pytest
import torchmetrics
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from hpu_core import SingleHPUStrategy
from hpu_core.distributed.errors import RankFailedError
from hpu_fsdp import HPUFSDPStrategy, HPUModelParallelStrategy

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, Layer, make_loader, make_trainer

STEPS = 3
STRATEGIES: dict[str, Any] = {
    "one unit": HPUFSDPStrategy,
    "a part in the root unit": lambda: HPUFSDPStrategy(auto_wrap_policy=_not_the_first),
    "a unit each": lambda: HPUFSDPStrategy(auto_wrap_policy=set(UNITS)),
    "gathered after forward": lambda: HPUFSDPStrategy(auto_wrap_policy=set(UNITS), sharding_strategy="SHARD_GRAD_OP"),
    "FSDP2": lambda: HPUModelParallelStrategy(2, 1),
}


def _not_the_first(module: Any, recurse: bool, nonwrapped_numel: int) -> bool:
    return recurse or (isinstance(module, Layer) and module.in_features < 64)


class Classifier(ImageClassifier):
    """Classifier that shards itself where the strategy has a mesh, and keeps its parameters gathered."""

    is_sharded = False

    def __init__(self) -> None:
        super().__init__()
        # The end of each run moves it to the host.
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10)

    def configure_model(self) -> None:
        """Shard the network, once."""
        if isinstance(self.trainer.strategy, HPUModelParallelStrategy) and not self.is_sharded:
            self.is_sharded = True
            mesh = self.device_mesh["data_parallel"]
            fully_shard(self.net, mesh=mesh, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy())

    def test_step(self, batch: Any, index: int) -> None:
        """Log the loss, and the accuracy."""
        self.log("loss", self.training_step(batch, index), sync_dist=True)
        self.accuracy(self.net(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)


def _trainer(strategy: Any, **options: Any) -> Any:
    return make_trainer(strategy=strategy, devices=2, max_steps=STEPS, **options)


def _test(trainer: Any, module: Any, **options: Any) -> float:
    (metrics,) = trainer.test(module, make_loader(trainer.global_rank, 2), verbose=False, **options)
    return float(metrics["loss"])


def _train_and_test(name: str, folder: str) -> list[float]:
    """Return the losses of tests before and after training, again, of a checkpoint, and after further training."""
    strategy = STRATEGIES.get(name, lambda: name)
    module, trainer = Classifier(), _trainer(strategy())
    data = make_loader(trainer.global_rank, 2)
    losses = [_test(trainer, module)]
    trainer.fit(module, data)
    losses += [_test(trainer, module), _test(trainer, module)]
    trainer.save_checkpoint(f"{folder}/{name}.ckpt")
    losses.append(_test(trainer, module, ckpt_path=f"{folder}/{name}.ckpt"))
    trainer.fit_loop.epoch_loop.max_steps = 2 * STEPS
    trainer.fit(module, data)
    losses.append(_test(trainer, module))
    other = _trainer(strategy())
    losses.append(_test(other, module))
    other.fit(module, data)
    return [*losses, _test(other, module)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_losses_are_those_of_ddp(name: str, on_ranks: OnRanks, tmp_path: Any) -> None:
    """A module that is sharded already is tested and trained as one that is not, also by another Trainer."""
    expected = on_ranks(_train_and_test, "hpu_ddp", str(tmp_path))
    assert len(set(expected[0])) == 4  # Before training, after it, after more, and after that of the other Trainer.
    for losses, reference in zip(on_ranks(_train_and_test, name, str(tmp_path)), expected, strict=True):
        assert losses == pytest.approx(reference, rel=1e-5)


def _refusals() -> list[str]:
    module = Classifier()
    trainer = _trainer("hpu_fsdp")
    trainer.fit(module, make_loader(trainer.global_rank, 2))
    others = {
        "another strategy": _trainer("hpu_ddp"),
        "one card": make_trainer(strategy=SingleHPUStrategy(), devices=1),
        "another sharding": _trainer(HPUFSDPStrategy(sharding_strategy="SHARD_GRAD_OP")),
        "another precision": _trainer("hpu_fsdp", precision="bf16-mixed"),
    }
    errors = []
    for other in others.values():
        # The rank that raises later may learn of the other's error first, which has the same message.
        with pytest.raises((ValueError, RankFailedError), match="with which this module was sharded") as caught:
            _test(other, module)
        errors.append(str(caught.value))
    return errors


def test_what_differs_is_named(on_ranks: OnRanks) -> None:
    """A sharded module is refused by what cannot take it, with the value and the remedy."""
    errors = on_ranks(_refusals)[0]
    assert [error.split("`")[1] for error in errors] == ["strategy", "strategy", "sharding_strategy", "precision"]
    assert "got 'hpu_ddp'" in errors[0]
    assert all("load it into a new module" in error for error in errors)
