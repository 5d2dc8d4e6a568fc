"""Tests of arguments that both plugins have."""

import pytest

from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin


@pytest.mark.parametrize("plugin", [HPUPrecisionPlugin, FabricHPUPrecision])
def test_device_is_the_second_argument(plugin: type[HPUPrecisionPlugin] | type[FabricHPUPrecision]) -> None:
    """Lightning's plugins and lightning-habana's have the same signature."""
    assert plugin("32-true", "hpu").precision == plugin("32-true", device="hpu").precision == "32-true"
    with pytest.raises(ValueError, match=r"^`device` must be 'hpu', got 'cuda'$"):
        plugin("32-true", "cuda")
