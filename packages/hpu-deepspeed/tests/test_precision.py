"""The precisions that DeepSpeed trains in."""

from typing import Any

import pytest

from hpu_deepspeed import HPUDeepSpeedPrecisionPlugin
from hpu_deepspeed._lightning import DeepSpeedPrecision, FabricDeepSpeedPrecision
from hpu_deepspeed.precision import FabricHPUDeepSpeedPrecision

_CLASSES = [HPUDeepSpeedPrecisionPlugin, FabricHPUDeepSpeedPrecision]


@pytest.mark.parametrize("kind", _CLASSES)
@pytest.mark.parametrize(
    ("given", "spelled"), [("bf16-mixed", "bf16-mixed"), ("bf16", "bf16-mixed"), (32, "32-true"), ("16", "16-mixed")]
)
def test_a_precision_is_spelled_as_in_the_trainer(kind: Any, given: Any, spelled: str) -> None:
    """The older spellings count."""
    assert kind(given).precision == spelled


@pytest.mark.parametrize("kind", _CLASSES)
def test_another_precision_is_refused(kind: Any) -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match=r"`precision` must be '32-true', .* or '16-true', got 'fp8'"):
        kind("fp8")


def test_they_are_lightnings() -> None:
    """Lightning and DeepSpeed's strategies recognise them."""
    assert issubclass(HPUDeepSpeedPrecisionPlugin, DeepSpeedPrecision)
    assert issubclass(FabricHPUDeepSpeedPrecision, FabricDeepSpeedPrecision)


def test_the_device_may_be_named() -> None:
    """Lightning's plugins for mixed precision and the archived package's take it as their second argument."""
    assert HPUDeepSpeedPrecisionPlugin("bf16-mixed", "hpu").precision == "bf16-mixed"


def test_another_device_is_refused() -> None:
    """There is none that the plugin is for."""
    with pytest.raises(ValueError, match=r"^`device` must be 'hpu', got 'cuda'$"):
        HPUDeepSpeedPrecisionPlugin("bf16-mixed", device="cuda")
