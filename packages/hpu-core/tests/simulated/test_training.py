"""Tests of Lightning's loops on a simulated device."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUCheckpointIO, frameworks
from hpu_core._lightning import MisconfigurationException
from hpu_testing.modules import BATCHES, Classifier, ManualClassifier, make_loader, to_floats

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
def test_losses_equal_those_on_cpu(
    make: type[Classifier], options: dict[str, Any], trainer: MakeTrainer, cpu_trainer: MakeTrainer
) -> None:
    device, cpu = make(), make()
    trainer(max_epochs=2, **options).fit(device, make_loader())
    cpu_trainer(max_epochs=2, **options).fit(cpu, make_loader())

    assert to_floats(device.losses) == to_floats(cpu.losses)
    assert to_floats(device.losses)[-1] < to_floats(device.losses)[0]


@pytest.mark.parametrize("loop", ["validate", "test"])
def test_metrics_equal_those_on_cpu(loop: str, trainer: MakeTrainer, cpu_trainer: MakeTrainer) -> None:
    module = Classifier()

    on_device = getattr(trainer(), loop)(module, make_loader(), verbose=False)
    on_cpu = getattr(cpu_trainer(), loop)(module, make_loader(), verbose=False)

    assert on_device == on_cpu


def test_predictions_equal_those_on_cpu(trainer: MakeTrainer, cpu_trainer: MakeTrainer) -> None:
    module = Classifier()

    on_device = trainer().predict(module, make_loader())
    on_cpu = cpu_trainer().predict(module, make_loader())

    assert len(on_device) == BATCHES
    assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(on_device, on_cpu, strict=True))


class DeviceRecorder(Classifier):
    """Classifier that compares its device with those of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.comparisons: set[bool] = set()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> Any:
        self.comparisons |= {tensor.device == self.device for tensor in (*batch, *self.parameters())}
        return super().training_step(batch, index)

    def configure_optimizers(self) -> Any:
        self.comparisons |= {parameter.device == self.device for parameter in self.parameters()}
        return super().configure_optimizers()


def test_device_of_the_module_is_that_of_its_tensors(trainer: MakeTrainer) -> None:
    module = DeviceRecorder()
    trainer().fit(module, make_loader())

    assert module.comparisons == {True}


def test_batches_are_moved_non_blocking(trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[bool] = []
    to = torch.Tensor.to

    def spy(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if self.shape[:1] == (8,) and torch.device("hpu", 0) in args:
            moves.append(options.get("non_blocking", False))
        return to(self, *args, **options)

    monkeypatch.setattr(torch.Tensor, "to", spy)
    trainer().fit(Classifier(), make_loader())

    assert moves == [True] * BATCHES * 2


class _DropoutClassifier(Classifier):
    """Classifier whose losses depend on the device's generator."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(torch.nn.Dropout(0.5))


class _SamplingClassifier(_DropoutClassifier):
    """Classifier whose evaluation draws from the device's generator, as a VAE or a diffusion model."""

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        torch.randn(4, device=self.device)


@pytest.mark.parametrize("accelerator", ["trainer", "cpu_trainer"])
def test_sanity_check_does_not_change_the_training(accelerator: str, request: pytest.FixtureRequest) -> None:
    losses = []
    for steps in (0, 2):
        torch.manual_seed(5)
        module = _SamplingClassifier()
        trainer = request.getfixturevalue(accelerator)(num_sanity_val_steps=steps)
        trainer.fit(module, make_loader(), make_loader())
        losses.append(to_floats(module.losses))

    assert losses[0] == losses[1]


def test_spawned_rank_draws_the_numbers_of_its_launcher() -> None:
    """A snapshot of the launcher's generators is pickled for a spawned rank, which restores it."""
    snapshot = _lightning.fabric("strategies.launchers.multiprocessing")._GlobalStateSnapshot
    captured = pickle.dumps(snapshot.capture())
    expected = torch.rand(4, device="hpu").tolist()
    torch.manual_seed(7)
    pickle.loads(captured).restore()  # noqa: S301 - pickled above.

    assert torch.rand(4, device="hpu").tolist() == expected


def test_checkpoint_has_cpu_tensors(trainer: MakeTrainer, tmp_path: Path) -> None:
    run = trainer()
    run.fit(Classifier(), make_loader())
    run.strategy.model_to_device()
    run.save_checkpoint(tmp_path / "last.ckpt")

    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    state = checkpoint["optimizer_states"][0]["state"][0]
    assert {value.device.type for value in (*checkpoint["state_dict"].values(), *state.values())} == {"cpu"}


class _RecordingCheckpointIO(HPUCheckpointIO):
    """Plugin that records the devices of the tensors that it gets."""

    def __init__(self) -> None:
        self.devices: set[str] = set()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        tensors = torch.utils._pytree.tree_leaves(checkpoint)
        self.devices |= {tensor.device.type for tensor in tensors if isinstance(tensor, torch.Tensor)}
        super().save_checkpoint(checkpoint, path, storage_options)


@pytest.mark.skipif(
    not hasattr(_lightning.pytorch("plugins.io.async_plugin"), "_clone_tensor"),
    reason="Requires: a Lightning whose asynchronous plugin copies the checkpoint",
)
def test_asynchronous_checkpoint_is_copied_to_the_host(trainer: MakeTrainer, tmp_path: Path) -> None:
    """A copy on the device would double the memory of the state."""
    plugin = _RecordingCheckpointIO()
    run = trainer(plugins=_lightning.pytorch("plugins.io").AsyncCheckpointIO(plugin))
    run.fit(Classifier(), make_loader())
    run.strategy.model_to_device()
    run.save_checkpoint(tmp_path / "last.ckpt")
    run.strategy.checkpoint_io.teardown()

    assert plugin.devices == {"cpu"}


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_init_module_creates_weights_on_device(trainer: MakeTrainer) -> None:
    with trainer().init_module():
        module = Classifier()

    assert {parameter.device.type for parameter in module.parameters()} == {"hpu"}


def test_error_without_strategy_names_it(trainer: MakeTrainer) -> None:
    class OwnStrategy(_lightning.pytorch("strategies").SingleDeviceStrategy):  # type: ignore[misc] # The class depends on the framework.
        pass

    run = trainer(strategy=OwnStrategy("cpu"))

    with pytest.raises(MisconfigurationException, match=r"pass `strategy=hpu_core\.SingleHPUStrategy\(\)`"):
        run.fit(Classifier(), make_loader())


def test_error_without_accelerator_names_it(trainer: MakeTrainer) -> None:
    run = trainer(accelerator="cpu")

    with pytest.raises(MisconfigurationException, match=r"pass `accelerator=hpu_core\.HPUAccelerator\(\)`"):
        run.fit(Classifier(), make_loader())
