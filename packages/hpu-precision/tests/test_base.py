"""What the Trainer's plugin and Fabric's take alike."""

import pytest

from hpu_precision import FabricHPUPrecision, HPUPrecisionPlugin


@pytest.mark.parametrize("plugin", [HPUPrecisionPlugin, FabricHPUPrecision])
def test_the_device_may_be_named(plugin: type[HPUPrecisionPlugin] | type[FabricHPUPrecision]) -> None:
    """Lightning's own plugins and the archived package's take it as their second argument."""
    assert plugin("32-true", "hpu").precision == plugin("32-true", device="hpu").precision == "32-true"


@pytest.mark.parametrize("plugin", [HPUPrecisionPlugin, FabricHPUPrecision])
def test_another_device_is_refused(plugin: type[HPUPrecisionPlugin] | type[FabricHPUPrecision]) -> None:
    """There is none that these plugins are for."""
    with pytest.raises(ValueError, match=r"^`device` must be 'hpu', got 'cuda'$"):
        plugin("32-true", "cuda")
