"""Tests of the sentences at the end of errors in steps."""

import re

import pytest
import torch

from hpu_core import SingleHPUStrategy
from hpu_core._lightning import SingleDeviceStrategy
from hpu_core._step_errors import explain_errors


def _fail(error: Exception) -> None:
    raise error


class _InductorError(RuntimeError):
    """Stand in for inductor's error, which wraps another one."""

    def __init__(self) -> None:
        super().__init__("backend='inductor' raised")
        self.inner_exception = KeyError("hpu")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AssertionError("Torch not compiled with CUDA enabled"), "pass `device=self.device`"),
        (RuntimeError("Found no NVIDIA driver on your system."), "pass `device=self.device`"),
        (
            RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, hpu:0 and cpu!"
            ),
            "register it as a buffer",
        ),
        (RuntimeError("Could not run 'aten::x' with arguments from the 'SparseHPU' backend."), "pass `sparse=False`"),
        (RuntimeError("Complex datatype is not supported on HPU device."), "real and imaginary parts"),
        (RuntimeError("prelu: Type promoting not supported. Got BFloat16 and Float"), "in `fp32_ops`"),
        (RuntimeError("expected scalar type BFloat16 but found Float"), "in `fp32_ops`"),
        (_InductorError(), '`backend="hpu_backend"'),
    ],
    ids=["cuda", "a build for CUDA", "devices", "sparse", "complex", "promoted", "scalar type", "inductor"],
)
def test_error_ends_with_what_to_write(error: Exception, sentence: str) -> None:
    text = str(error)
    with pytest.raises(type(error)) as raised, explain_errors():
        _fail(error)

    assert str(raised.value).startswith(text)
    assert re.search(rf"\nOn Gaudi: .*{re.escape(sentence)}", str(raised.value))


def test_error_of_a_callback_is_explained_once() -> None:
    """Lightning hands the strategy each error, also that of a step, which has its sentence already."""
    error = AssertionError("Torch not compiled with CUDA enabled")
    for _ in range(2):
        SingleHPUStrategy().on_exception(error)

    assert str(error).count("On Gaudi: ") == 1


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("hpu_id"), OSError(2, "no file")])
def test_other_errors_stay(error: Exception) -> None:
    before = error.args
    with pytest.raises(type(error)) as raised, explain_errors():
        _fail(error)

    assert raised.value.args == before


@pytest.mark.parametrize("step", ["training_step", "validation_step", "test_step", "predict_step"])
def test_every_step_explains(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        torch.ones(1).cuda()

    monkeypatch.setattr(SingleDeviceStrategy, step, fail)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda _: _fail(AssertionError("Torch not compiled with CUDA enabled")))
    with pytest.raises(AssertionError, match="On Gaudi: there is no CUDA"):
        getattr(SingleHPUStrategy(), step)()
