"""Lightning names that hpu-precision uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework. Type checkers see the names of the newest `lightning`; those of
`pytorch_lightning` are generated from the same sources.
"""

from typing import TYPE_CHECKING


def reject_half_precision(name: str) -> None:
    """Raise an error, in place of HalfPrecision on Lightning 2.0."""
    raise NotImplementedError(f"precision={name!r} needs Lightning 2.1 or newer: use 'bf16-mixed'")


if TYPE_CHECKING:
    from lightning.fabric.plugins.precision.amp import MixedPrecision as FabricMixedPrecision
    from lightning.fabric.plugins.precision.half import HalfPrecision as FabricHalfPrecision
    from lightning.fabric.plugins.precision.precision import Precision as FabricPrecision
    from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision, Precision
    from lightning.pytorch.utilities import GradClipAlgorithmType, rank_zero_info, rank_zero_warn
else:
    from hpu_core import frameworks

    _framework = frameworks.current()
    _precision = _framework.pytorch("plugins.precision")
    _pytorch_utils = _framework.pytorch("utilities")
    _fabric_precision = _framework.fabric("plugins.precision")

    FabricMixedPrecision = _framework.fabric("plugins.precision.amp").MixedPrecision
    FabricPrecision = _framework.fabric("plugins.precision.precision").Precision
    GradClipAlgorithmType = _pytorch_utils.GradClipAlgorithmType
    rank_zero_info = _pytorch_utils.rank_zero_info
    rank_zero_warn = _pytorch_utils.rank_zero_warn

    # Lightning 2.1 dropped "Plugin" from these names and added half precision.
    Precision = getattr(_precision, "Precision", None) or _precision.PrecisionPlugin
    MixedPrecision = getattr(_precision, "MixedPrecision", None) or _precision.MixedPrecisionPlugin
    HalfPrecision = getattr(_precision, "HalfPrecision", reject_half_precision)
    FabricHalfPrecision = getattr(_fabric_precision, "HalfPrecision", reject_half_precision)
