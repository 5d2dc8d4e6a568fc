"""Lightning's loops in each precision."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import frameworks
from hpu_precision import HPUPrecisionPlugin

from .modules import BATCHES, Classifier, loader, losses

_lightning = frameworks.current()
_has_half = pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1 for half precision")
_has_scaler = pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for a scaler")

MakeTrainer = Callable[..., Any]


def _low(has_hmp: bool) -> torch.dtype:
    """Return what 16 means without lists."""
    return torch.bfloat16 if has_hmp else torch.float16


@pytest.mark.parametrize("value", [32, "bf16-mixed", pytest.param("bf16-true", marks=_has_half)])
@pytest.mark.parametrize("loop", ["fit", "validate", "test", "predict"])
def test_every_loop_computes_in_the_precision(value: int | str, loop: str, trainer: MakeTrainer) -> None:
    """Training, validation, test and prediction run layers in the type that the precision says."""
    module = Classifier()
    getattr(trainer(HPUPrecisionPlugin(value)), loop)(module, loader())

    assert module.types[loop] == (torch.float32 if value == 32 else torch.bfloat16)


@_has_scaler
def test_16_bit_is_as_the_release_has_it(has_hmp: bool, trainer: MakeTrainer) -> None:
    """HMP's 16 bit is bf16, elsewhere it is fp16."""
    module = Classifier()
    trainer(HPUPrecisionPlugin(16)).fit(module, loader())

    assert module.types["fit"] == _low(has_hmp)


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
    """Step by step the losses are those of 32 bit, to the digits that the lower precision has."""
    mixed, full = Classifier(), Classifier()
    trainer(HPUPrecisionPlugin(value), **options).fit(mixed, loader())
    trainer(HPUPrecisionPlugin(32), **options).fit(full, loader())

    assert losses(mixed) == pytest.approx(losses(full), rel=0.05, abs=0.01)
    assert losses(mixed) != losses(full)


@pytest.mark.parametrize("value", [32, *_MIXED])
def test_parameters_and_optimizer_states_stay_float32(value: int | str, trainer: MakeTrainer) -> None:
    """Only inside the steps anything has another type."""
    module = Classifier()
    run = trainer(HPUPrecisionPlugin(value))
    run.fit(module, loader())

    states = [entry for state in run.optimizers[0].state.values() for entry in state.values()]
    assert {tensor.dtype for tensor in (*module.parameters(), *states)} == {torch.float32}


def test_32_bit_enters_no_autocast(trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anything to cast, torch.autocast is not even made; it would warn at every step."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError((arguments, options))

    monkeypatch.setattr(torch, "autocast", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with HPUPrecisionPlugin(32).forward_context():
            pass


def test_32_bit_is_the_same_beside_mixed_precision(trainer: MakeTrainer) -> None:
    """A Trainer in 32 bit computes the same after another one in mixed precision, HMP or not."""
    first, second = Classifier(), Classifier()
    trainer().fit(first, loader())
    trainer(HPUPrecisionPlugin("bf16-mixed")).fit(Classifier(), loader())
    trainer(HPUPrecisionPlugin(32)).fit(second, loader())

    assert losses(first) == losses(second)


class Manual(Classifier):
    """Takes its optimizer steps itself, and notes the types of what the optimizer computes with."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.seen: set[torch.dtype] = set()

    def training_step(self, batch: Any, index: int) -> None:
        """Compute the loss outside of the closure first, then inside of it."""
        optimizer = self.optimizers()
        loss = self._loss(batch, "fit")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            again = self._loss(batch, "closure")
            self.manual_backward(again)
            return again

        optimizer.step(closure=closure)
        self.seen.add((loss.detach() * loss.detach()).dtype)

    def configure_optimizers(self) -> Any:
        """Return an optimizer that multiplies as modules do."""
        return _Multiplying(self.parameters(), self.types)


class _Multiplying(torch.optim.SGD):
    """Notes the type of a product in its step."""

    def __init__(self, parameters: Any, types: dict[str, torch.dtype]) -> None:
        super().__init__(parameters, lr=0.05)
        self.types = types

    def step(self, closure: Any = None) -> Any:
        """Multiply two float32 tensors, which inside a module's step is an op for the lower precision."""
        result = super().step(closure)
        (first, *_) = (parameter for group in self.param_groups for parameter in group["params"])
        self.types["optimizer"] = (first * first).dtype
        return result


def test_manual_optimization_casts_in_the_module_alone(trainer: MakeTrainer) -> None:
    """Inside a step, the optimizer computes in float32, its closure and what follows in the lower precision."""
    module = Manual()
    trainer(HPUPrecisionPlugin("bf16-mixed")).fit(module, loader())

    assert module.types == {"fit": torch.bfloat16, "closure": torch.bfloat16, "optimizer": torch.float32}
    assert module.seen == {torch.bfloat16}


@pytest.mark.parametrize("value", _MIXED)
def test_a_checkpoint_resumes(value: int | str, trainer: MakeTrainer, tmp_path: Path) -> None:
    """Two epochs in one go and with a restart in between give the same losses, the scaler's state included."""
    whole, resumed = Classifier(), Classifier()
    for module, checkpoint in ((whole, None), (resumed, tmp_path / "epoch=0.ckpt")):
        # As text, which torch's restricted loading lets pass on every Lightning.
        saving = _lightning.pytorch("callbacks").ModelCheckpoint(str(tmp_path), filename="{epoch}", save_top_k=-1)
        run = trainer(HPUPrecisionPlugin(value), enable_checkpointing=True, callbacks=saving)
        run.fit(module, loader(), ckpt_path=checkpoint)

    assert losses(resumed) == losses(whole)[BATCHES:]


@_has_scaler
@pytest.mark.usefixtures("needs_autocast")
def test_the_scalers_state_is_saved(trainer: MakeTrainer, tmp_path: Path) -> None:
    """The scale that training has found is in the checkpoint."""
    run = trainer(HPUPrecisionPlugin(16, scaler=torch.amp.GradScaler("hpu", init_scale=8.0)))
    run.fit(Classifier(), loader())
    run.save_checkpoint(tmp_path / "last.ckpt")

    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    assert checkpoint["HPUPrecisionPlugin"]["scale"] == 8.0


@_has_scaler
@pytest.mark.usefixtures("needs_autocast")
def test_a_step_with_overflown_gradients_is_skipped(trainer: MakeTrainer) -> None:
    """A scale that is too large leaves the weights alone and is halved."""
    module, untouched = Classifier(), Classifier()
    run = trainer(HPUPrecisionPlugin(16, scaler=torch.amp.GradScaler("hpu", init_scale=2.0**40)), max_steps=1)
    run.fit(module, loader())

    assert all(map(torch.equal, module.parameters(), untouched.parameters()))
    assert run.precision_plugin.state_dict()["scale"] == 2.0**39


@_has_half
def test_half_precision_is_half_in_all(trainer: MakeTrainer) -> None:
    """Under "bf16-true" parameters are bf16, too."""
    module = Classifier()
    trainer(HPUPrecisionPlugin("bf16-true")).fit(module, loader())

    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}


@_has_half
@pytest.mark.parametrize(
    ("value", "dtype"), [(32, torch.float32), ("bf16-mixed", torch.float32), ("bf16-true", torch.bfloat16)]
)
def test_a_module_is_made_in_the_type_of_its_parameters(
    value: int | str, dtype: torch.dtype, trainer: MakeTrainer
) -> None:
    """`Trainer.init_module` makes parameters on the card, and in bf16 where they are to be."""
    with trainer(HPUPrecisionPlugin(value)).init_module():
        module = Classifier()

    assert {(parameter.device.type, parameter.dtype) for parameter in module.parameters()} == {("hpu", dtype)}


@pytest.mark.parametrize("value", [32, "bf16-mixed"])
def test_the_trainer_tells_the_precision(value: int | str, trainer: MakeTrainer) -> None:
    """`Trainer.precision` is the plugin's."""
    assert trainer(HPUPrecisionPlugin(value)).precision == ("32-true" if value == 32 else value)


def test_an_error_in_a_step_leaves_no_casts_behind(trainer: MakeTrainer) -> None:
    """After a failed step nothing is cast, though HMP's own context would leave it wrong."""

    class Failing(Classifier):
        def training_step(self, batch: Any, index: int) -> None:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        trainer(HPUPrecisionPlugin("bf16-mixed")).fit(Failing(), loader())

    data = torch.ones(2, 2, device="hpu")
    assert torch.nn.functional.linear(data, data).dtype == torch.float32
    with HPUPrecisionPlugin("bf16-mixed").forward_context():
        assert torch.nn.functional.linear(data, data).dtype == torch.bfloat16
