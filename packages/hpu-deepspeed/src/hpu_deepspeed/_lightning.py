"""Lightning names that hpu-deepspeed uses, from the framework that `hpu_core.frameworks` selects.

Importing this module imports that framework, but not DeepSpeed. Type checkers see the names of `lightning`; those of
`pytorch_lightning` are generated from the same sources.
"""

from typing import TYPE_CHECKING

from hpu_core import frameworks

if TYPE_CHECKING:
    from lightning.fabric.plugins.precision.deepspeed import DeepSpeedPrecision as FabricDeepSpeedPrecision
    from lightning.fabric.strategies.deepspeed import DeepSpeedStrategy as FabricDeepSpeedStrategy
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.fabric.utilities.seed import reset_seed
    from lightning.pytorch.core.optimizer import _MockOptimizer as MockOptimizer
    from lightning.pytorch.plugins.precision.deepspeed import DeepSpeedPrecision
    from lightning.pytorch.strategies.deepspeed import DeepSpeedStrategy
    from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
else:
    _framework = frameworks.current()
    _fabric_precision = _framework.fabric("plugins.precision.deepspeed")
    _precision = _framework.pytorch("plugins.precision.deepspeed")

    DeepSpeedStrategy = _framework.pytorch("strategies.deepspeed").DeepSpeedStrategy
    FabricDeepSpeedStrategy = _framework.fabric("strategies.deepspeed").DeepSpeedStrategy
    MisconfigurationException = _framework.fabric("utilities.exceptions").MisconfigurationException
    rank_zero_info = _framework.pytorch("utilities").rank_zero_info
    rank_zero_warn = _framework.pytorch("utilities").rank_zero_warn
    reset_seed = _framework.fabric("utilities.seed").reset_seed

    # Lightning 2.0 calls the class DeepSpeedPrecisionPlugin.
    DeepSpeedPrecision = getattr(_precision, "DeepSpeedPrecision", None) or _precision.DeepSpeedPrecisionPlugin
    FabricDeepSpeedPrecision = _fabric_precision.DeepSpeedPrecision

    # Private, but Lightning 2.0 to 2.6 all have it: the optimizer that stands for None.
    MockOptimizer = _framework.pytorch("core.optimizer")._MockOptimizer  # noqa: SLF001 - see above.
