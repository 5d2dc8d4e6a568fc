"""Tests of Lightning's loops in each precision."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torchmetrics
from packaging.version import Version

from hpu_core import frameworks
from hpu_precision import HPUPrecisionPlugin
from hpu_testing.modules import BATCHES, make_loader, to_floats

from .modules import Classifier

_lightning = frameworks.current()
_has_half = pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision")
_has_scaler = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for torch.amp.GradScaler"
)

MakeTrainer = Callable[..., Any]


def _dtype_of_16(has_hmp: bool) -> torch.dtype:
    """Return the lower precision of `precision=16` without lists."""
    return torch.bfloat16 if has_hmp else torch.float16


@pytest.mark.parametrize("value", [32, "bf16-mixed", pytest.param("bf16-true", marks=_has_half)])
@pytest.mark.parametrize("loop", ["fit", "validate", "test", "predict"])
def test_every_loop_uses_the_precision(value: int | str, loop: str, trainer: MakeTrainer) -> None:
    module = Classifier()
    getattr(trainer(HPUPrecisionPlugin(value)), loop)(module, make_loader())

    assert module.dtypes[loop] == (torch.float32 if value == 32 else torch.bfloat16)


@_has_scaler
def test_16_bit_is_bf16_with_hmp_and_fp16_without(has_hmp: bool, trainer: MakeTrainer) -> None:
    module = Classifier()
    trainer(HPUPrecisionPlugin(16)).fit(module, make_loader())

    assert module.dtypes["fit"] == _dtype_of_16(has_hmp)


_MIXED = ["bf16-mixed", pytest.param(16, marks=_has_scaler)]


@pytest.mark.parametrize("value", _MIXED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 0.01},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
    ],
    ids=["plain", "accumulation", "clipping by norm", "clipping by value"],
)
def test_mixed_precision_trains_like_32_bit(value: int | str, options: dict[str, Any], trainer: MakeTrainer) -> None:
    """The losses of each step are close, and not equal."""
    mixed, full = Classifier(), Classifier()
    trainer(HPUPrecisionPlugin(value), **options).fit(mixed, make_loader())
    trainer(HPUPrecisionPlugin(32), **options).fit(full, make_loader())

    assert to_floats(mixed.losses) == pytest.approx(to_floats(full.losses), rel=0.05, abs=0.01)
    assert to_floats(mixed.losses) != to_floats(full.losses)


def test_32_bit_does_not_use_autocast(trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.autocast would warn in every step."""

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError((arguments, options))

    monkeypatch.setattr(torch, "autocast", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with HPUPrecisionPlugin(32).forward_context():
            pass


class ManualClassifier(Classifier):
    """Classifier with manual optimization that notes the dtype of a product in each part of its step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def on_before_backward(self, loss: torch.Tensor) -> None:
        """Note the dtype of the backward pass."""
        self._note("backward")

    def training_step(self, batch: Any, index: int) -> None:
        """Train on a loss that overflows in float16 when it is scaled."""
        optimizer = self.optimizers()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = 3 + self.compute_loss(batch)
            self._note("closure")
            self.manual_backward(loss)
            with mock.patch.object(torch.nn.utils, "clip_grad_norm_", side_effect=lambda *_: self._note("clipping")):
                self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
            return loss

        optimizer.step(closure=closure)
        self._note("fit")

    def configure_optimizers(self) -> Any:
        """Return an optimizer that notes a dtype."""
        note = self._note

        class SGD(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                result = super().step(closure)
                note("optimizer")
                return result

        return SGD(self.parameters(), lr=0.05)

    def _note(self, part: str) -> None:
        weight = next(self.parameters()).detach()
        self.dtypes[part] = torch.nn.functional.linear(weight, weight).dtype


@pytest.mark.parametrize("value", _MIXED)
def test_manual_optimization_is_cast_in_the_steps_alone(value: int | str, has_hmp: bool, trainer: MakeTrainer) -> None:
    """Neither the backward pass, clipping nor the optimizer are."""
    module = ManualClassifier()
    run = trainer(HPUPrecisionPlugin(value))
    run.fit(module, make_loader())

    lower = torch.bfloat16 if value == "bf16-mixed" else _dtype_of_16(has_hmp)
    same = dict.fromkeys(("backward", "clipping", "optimizer"), torch.float32)
    assert module.dtypes == {**same, "fit": lower, "closure": lower}
    # A loss that is scaled in float16 would be infinite, which halves the scale.
    assert run.precision_plugin.state_dict().get("scale", 65536) == 65536


# bfloat16 and float16 round it to 1.234375.
_NUMBER = 1.2345678


class LoggingClassifier(Classifier):
    """Classifier that logs a number in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torchmetrics.MeanMetric()
        self.sum = torchmetrics.SumMetric()

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        """Log a tensor, a number, a metric, and what a metric returns."""
        value = torch.tensor(_NUMBER, device=self.device)
        self.log_dict({"tensor": value, "number": _NUMBER, "of the step": self.mean(value)}, batch_size=len(batch[0]))
        self.log("mean", self.mean)
        self.sum.update(value)
        self.log("computed", self.sum.compute() / (index + 1))


@pytest.mark.parametrize("value", _MIXED)
def test_logged_values_are_not_cast(value: int | str, trainer: MakeTrainer) -> None:
    """As with Lightning's own mixed precision on a CPU."""
    run = trainer(HPUPrecisionPlugin(value))
    run.validate(LoggingClassifier(), make_loader(), verbose=False)

    logged = {name: value.item() for name, value in run.callback_metrics.items()}
    assert logged == pytest.approx(dict.fromkeys(logged, _NUMBER), rel=1e-6)
    assert len(logged) == 5


class IdleOptimizerClassifier(Classifier):
    """Classifier with manual optimization and an optimizer whose parameters have no gradients, as of a late GAN."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.idle = torch.nn.Linear(2, 2)

    def training_step(self, batch: Any, index: int) -> None:
        """Step both optimizers."""
        loss = self.compute_loss(batch)
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()
        self.losses.append(loss.detach())

    def configure_optimizers(self) -> Any:
        """Return one optimizer for each part."""
        return [torch.optim.Adam(part.parameters(), lr=0.01) for part in (self.net, self.idle)]


@pytest.mark.parametrize("value", [32, *_MIXED])
def test_step_without_gradients_does_nothing(value: int | str, trainer: MakeTrainer) -> None:
    module = IdleOptimizerClassifier()
    before = [parameter.clone() for parameter in module.idle.parameters()]
    trainer(HPUPrecisionPlugin(value)).fit(module, make_loader())

    assert all(map(torch.equal, module.idle.parameters(), before))
    assert to_floats(module.losses)[-1] < to_floats(module.losses)[0]


@pytest.mark.parametrize("value", _MIXED)
def test_training_resumes_from_a_checkpoint(value: int | str, trainer: MakeTrainer, tmp_path: Path) -> None:
    """The losses equal those of an uninterrupted training, so the scaler's state is restored as well."""
    uninterrupted, resumed = Classifier(), Classifier()
    for module, checkpoint in ((uninterrupted, None), (resumed, tmp_path / "epoch=0.ckpt")):
        # A string, because `torch.load(weights_only=True)` rejects a Path.
        callback = _lightning.pytorch("callbacks").ModelCheckpoint(str(tmp_path), filename="{epoch}", save_top_k=-1)
        run = trainer(HPUPrecisionPlugin(value), enable_checkpointing=True, callbacks=callback)
        run.fit(module, make_loader(), ckpt_path=checkpoint)

    assert to_floats(resumed.losses) == to_floats(uninterrupted.losses)[BATCHES:]


@_has_scaler
@pytest.mark.usefixtures("needs_autocast")
def test_step_with_overflow_is_skipped(trainer: MakeTrainer) -> None:
    """The weights are unchanged and the scale is halved."""
    module, untouched = Classifier(), Classifier()
    run = trainer(HPUPrecisionPlugin(16, scaler=torch.amp.GradScaler("hpu", init_scale=2.0**40)), max_steps=1)
    run.fit(module, make_loader())

    assert all(map(torch.equal, module.parameters(), untouched.parameters()))
    assert run.precision_plugin.state_dict()["scale"] == 2.0**39


@_has_half
@pytest.mark.parametrize(
    ("value", "dtype"), [(32, torch.float32), ("bf16-mixed", torch.float32), ("bf16-true", torch.bfloat16)]
)
def test_init_module_creates_parameters_on_the_device_in_their_dtype(
    value: int | str, dtype: torch.dtype, trainer: MakeTrainer
) -> None:
    with trainer(HPUPrecisionPlugin(value)).init_module():
        module = Classifier()

    assert {(parameter.device.type, parameter.dtype) for parameter in module.parameters()} == {("hpu", dtype)}


def test_casts_are_disabled_after_an_error_in_a_step(trainer: MakeTrainer) -> None:
    """HMP's own context manager would keep its casts disabled in later steps."""

    class FailingClassifier(Classifier):
        def training_step(self, batch: Any, index: int) -> None:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        trainer(HPUPrecisionPlugin("bf16-mixed")).fit(FailingClassifier(), make_loader())

    data = torch.ones(2, 2, device="hpu")
    assert torch.nn.functional.linear(data, data).dtype == torch.float32
    with HPUPrecisionPlugin("bf16-mixed").forward_context():
        assert torch.nn.functional.linear(data, data).dtype == torch.bfloat16
