"""Lightning's loops on a device, in the mode of this process."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, SingleHPUStrategy, bridge, frameworks
from hpu_core._lightning import MisconfigurationException

from .modules import BATCHES, Classifier, ManualClassifier, loader, losses

_lightning = frameworks.current()

MakeTrainer = Callable[..., Any]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Classifier, {}),
        (ManualClassifier, {}),
        (Classifier, {"accumulate_grad_batches": 2}),
        (Classifier, {"gradient_clip_val": 0.01}),
        (Classifier, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
    ],
    ids=["plain", "manual", "accumulation", "clipping by norm", "clipping by value"],
)
def test_training_goes_as_on_the_cpu(
    make: type[Classifier], options: dict[str, Any], trainer: MakeTrainer, cpu_trainer: MakeTrainer
) -> None:
    """Step by step the losses are the CPU's: nothing is left out, doubled or done in another order."""
    device, cpu = make(), make()
    trainer(max_epochs=2, **options).fit(device, loader())
    cpu_trainer(max_epochs=2, **options).fit(cpu, loader())

    assert losses(device) == losses(cpu)
    assert losses(device)[-1] < losses(device)[0]


def test_steps_run_on_the_device(trainer: MakeTrainer) -> None:
    """The loss is computed by the card, not by the CPU."""
    module = Classifier()
    trainer().fit(module, loader())

    assert {loss.device.type for loss in module.losses} == {"hpu"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, whose Trainer unwraps")
def test_compiled_modules_train(backend: str, trainer: MakeTrainer, cpu_trainer: MakeTrainer) -> None:
    """A module that went through torch.compile trains like the plain one."""
    device, cpu = Classifier(), Classifier()
    trainer().fit(torch.compile(device, backend=backend), loader())
    cpu_trainer().fit(cpu, loader())

    assert losses(device) == pytest.approx(losses(cpu), rel=1e-5)


@pytest.mark.parametrize("loop", ["validate", "test"])
def test_evaluation_gives_the_cpus_metrics(loop: str, trainer: MakeTrainer, cpu_trainer: MakeTrainer) -> None:
    """Validating and testing log what the CPU logs."""
    module = Classifier()

    on_device = getattr(trainer(), loop)(module, loader(), verbose=False)
    on_cpu = getattr(cpu_trainer(), loop)(module, loader(), verbose=False)

    assert on_device == on_cpu


def test_prediction_gives_the_cpus_scores(trainer: MakeTrainer, cpu_trainer: MakeTrainer) -> None:
    """Predicting returns the scores of every batch."""
    module = Classifier()

    on_device = trainer().predict(module, loader())
    on_cpu = cpu_trainer().predict(module, loader())

    assert len(on_device) == BATCHES
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(on_device, on_cpu, strict=True))


def test_a_process_can_train_again(trainer: MakeTrainer) -> None:
    """The card stays with the process, for as many Trainers as it makes."""
    first, second = Classifier(), Classifier()
    trainer().fit(first, loader())
    trainer().fit(second, loader())

    assert losses(first) == losses(second)


def test_the_module_is_on_the_cpu_afterwards(trainer: MakeTrainer) -> None:
    """As with any other accelerator, the trained module can be used without it."""
    module = Classifier()
    trainer().fit(module, loader())

    assert {parameter.device.type for parameter in module.parameters()} == {"cpu"}


def test_the_root_device_has_no_index(trainer: MakeTrainer) -> None:
    """Gaudi users compare with `torch.device("hpu")`."""
    assert trainer().strategy.root_device == torch.device("hpu")


def test_batches_are_moved_without_waiting(trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor of a batch goes to the card with `non_blocking=True`."""
    moves: list[bool] = []
    to = torch.Tensor.to

    def spy(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if self.shape[:1] == (8,) and torch.device("hpu") in args:
            moves.append(options.get("non_blocking", False))
        return to(self, *args, **options)

    monkeypatch.setattr(torch.Tensor, "to", spy)
    trainer().fit(Classifier(), loader())

    assert moves == [True] * BATCHES * 2


def test_a_checkpoint_resumes(trainer: MakeTrainer, tmp_path: Path) -> None:
    """Two epochs in one go and with a restart in between give the same losses, optimizer state included."""
    whole, resumed = Classifier(), Classifier()
    for module, checkpoint in ((whole, None), (resumed, tmp_path / "epoch=0.ckpt")):
        saving = _lightning.pytorch("callbacks").ModelCheckpoint(str(tmp_path), filename="{epoch}", save_top_k=-1)
        run = trainer(max_epochs=2, enable_checkpointing=True, callbacks=saving)
        run.fit(module, loader(), ckpt_path=checkpoint)

    assert losses(resumed) == losses(whole)[BATCHES:]


def test_a_checkpoint_is_of_the_cpu(trainer: MakeTrainer, tmp_path: Path) -> None:
    """Model and optimizer state are saved as tensors of the CPU, while the model trains on."""
    run = trainer()
    run.fit(Classifier(), loader())
    run.strategy.model_to_device()
    run.save_checkpoint(tmp_path / "last.ckpt")

    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    state = checkpoint["optimizer_states"][0]["state"][0]
    assert {value.device.type for value in (*checkpoint["state_dict"].values(), *state.values())} == {"cpu"}


def test_an_asynchronous_checkpoint_is_of_the_cpu(trainer: MakeTrainer, tmp_path: Path) -> None:
    """Lightning's asynchronous plugin wraps ours, and copies the tensors while the model is on the card."""
    saving = _lightning.pytorch("callbacks").ModelCheckpoint(str(tmp_path), filename="{epoch}")
    plugin = _lightning.pytorch("plugins.io").AsyncCheckpointIO()
    trainer(enable_checkpointing=True, callbacks=saving, plugins=plugin).fit(Classifier(), loader())

    state = torch.load(tmp_path / "epoch=0.ckpt", weights_only=False)["state_dict"]
    assert {value.device.type for value in state.values()} == {"cpu"}


def test_device_stats_are_logged(trainer: MakeTrainer, tmp_path: Path) -> None:
    """DeviceStatsMonitor writes the card's memory figures, as numbers."""
    logger = _lightning.pytorch("loggers").CSVLogger(tmp_path)
    monitor = _lightning.pytorch("callbacks").DeviceStatsMonitor()
    trainer(logger=logger, callbacks=monitor, log_every_n_steps=1).fit(Classifier(), loader())

    with Path(logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    in_use = [float(row["DeviceStatsMonitor.on_train_batch_end/InUse"] or 0) for row in rows]
    assert max(in_use) > 0
    assert "DeviceStatsMonitor.on_train_batch_start/Limit" in rows[0]


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_a_module_can_be_made_on_the_card(trainer: MakeTrainer) -> None:
    """`Trainer.init_module` makes the weights where they are needed."""
    with trainer().init_module():
        module = Classifier()

    assert {parameter.device.type for parameter in module.parameters()} == {"hpu"}


def test_several_devices_are_refused(trainer: MakeTrainer) -> None:
    """A Trainer that is asked for two cards does not train on one of them without a word."""
    with pytest.raises(MisconfigurationException, match="the Trainer was asked for 2: pass `devices=1`"):
        trainer(devices=2)


def test_the_accelerator_alone_names_the_strategy(trainer: MakeTrainer) -> None:
    """Where Lightning chooses a strategy for the CPU, the error says which one to pass."""
    run = trainer(strategy=_lightning.pytorch("strategies").SingleDeviceStrategy("cpu"))

    with pytest.raises(MisconfigurationException, match=r"pass `strategy=hpu_core\.SingleHPUStrategy\(\)`"):
        run.fit(Classifier(), loader())


def test_the_strategy_alone_names_the_accelerator(trainer: MakeTrainer) -> None:
    """Where Lightning chooses the CPU's accelerator, the error says which one to pass."""
    run = trainer(accelerator="cpu")

    with pytest.raises(MisconfigurationException, match=r"pass `accelerator=hpu_core\.HPUAccelerator\(\)`"):
        run.fit(Classifier(), loader())


def test_registered_names_are_found(trainer: MakeTrainer) -> None:
    """After registering, strings stand for the accelerator and the strategy."""
    HPUAccelerator.register_accelerators(_lightning.pytorch("accelerators").AcceleratorRegistry)
    SingleHPUStrategy.register_strategies(_lightning.pytorch("strategies").StrategyRegistry)

    run = trainer(accelerator="hpu", strategy="hpu_single")

    assert (type(run.accelerator), type(run.strategy)) == (HPUAccelerator, SingleHPUStrategy)


def test_the_simulator_is_known() -> None:
    """These tests ran on a simulated card."""
    assert bridge.is_simulated()
