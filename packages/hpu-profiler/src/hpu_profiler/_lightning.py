"""The Lightning names that hpu-profiler builds on, taken from the framework that `hpu_core.frameworks` decided for.

Importing this module imports that Lightning. Type checkers see the names of `lightning` at its newest; those of
`pytorch_lightning` are generated from the same sources.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch.profilers.pytorch import PyTorchProfiler, RegisterRecordFunction
    from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
else:
    from hpu_core import frameworks

    _framework = frameworks.current()
    _profilers = _framework.pytorch("profilers.pytorch")
    _utilities = _framework.pytorch("utilities")

    PyTorchProfiler = _profilers.PyTorchProfiler
    RegisterRecordFunction = _profilers.RegisterRecordFunction
    rank_zero_info = _utilities.rank_zero_info
    rank_zero_warn = _utilities.rank_zero_warn

__all__ = ["PyTorchProfiler", "RegisterRecordFunction", "rank_zero_info", "rank_zero_warn"]
