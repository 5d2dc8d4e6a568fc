"""Names of Ray that hpu-ray uses, and the error where Ray is missing."""

from typing import TYPE_CHECKING

from hpu_core import frameworks

try:
    import ray
    import ray.train
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hpu-ray needs Ray Train, which is not installed: pip install 'ray[train]>=2.51'", name="ray"
    ) from error

if TYPE_CHECKING:
    from ray.train.backend import Backend as TorchBackend
else:
    # Ray has no public name for it.
    TorchBackend = TorchConfig().backend_cls

# Names the missing Lightning, before Ray's module for it is imported.
frameworks.current()

from ray.train import lightning as ray_lightning  # noqa: E402 - see above.

__all__ = [
    "FailureConfig",
    "RunConfig",
    "ScalingConfig",
    "TorchBackend",
    "TorchConfig",
    "TorchTrainer",
    "ray",
    "ray_lightning",
]
