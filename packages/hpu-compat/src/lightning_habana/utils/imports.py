"""Version checks of the archived package, evaluated on first use."""

from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING

from packaging.version import Version

from hpu_compat import _lazy
from hpu_core import bridge, frameworks
from lightning_habana.utils import resources


def _synapse_from(release: str) -> Callable[[], bool]:
    return lambda: Version(resources.get_hpu_synapse_version()) >= Version(release)


def _lightning_from(version: str) -> Callable[[], bool]:
    return lambda: Version(frameworks.current().version.base_version) >= Version(version)


def _torch() -> Version:
    return Version(Version(metadata.version("torch")).base_version)


def _kineto() -> bool:
    import torch.profiler

    return torch.profiler.kineto_available()


if TYPE_CHECKING:
    _HABANA_FRAMEWORK_AVAILABLE: bool
    _HPU_SYNAPSE_GREATER_EQUAL_1_11_0: bool
    _HPU_SYNAPSE_GREATER_EQUAL_1_14_0: bool
    _HPU_SYNAPSE_GREATER_EQUAL_1_17_0: bool
    _KINETO_AVAILABLE: bool
    _LIGHTNING_GREATER_EQUAL_2_0_0: bool
    _LIGHTNING_GREATER_EQUAL_2_3_0: bool
    _TORCHVISION_AVAILABLE: bool
    _TORCH_GREATER_EQUAL_2_0_0: bool
    _TORCH_LESSER_2_3_0: bool
    _TORCH_LESSER_EQUAL_1_13_1: bool
else:
    __getattr__, __dir__ = _lazy.lazy_getattr(
        __name__,
        computed={
            "_HABANA_FRAMEWORK_AVAILABLE": bridge.is_installed,
            "_HPU_SYNAPSE_GREATER_EQUAL_1_11_0": _synapse_from("1.11.0"),
            "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0": _synapse_from("1.14.0"),
            "_HPU_SYNAPSE_GREATER_EQUAL_1_17_0": _synapse_from("1.17.0"),
            "_KINETO_AVAILABLE": _kineto,
            "_LIGHTNING_GREATER_EQUAL_2_0_0": _lightning_from("2.0.0"),
            "_LIGHTNING_GREATER_EQUAL_2_3_0": _lightning_from("2.3.0"),
            "_TORCHVISION_AVAILABLE": lambda: _lazy.is_installed("torchvision"),
            "_TORCH_GREATER_EQUAL_2_0_0": lambda: _torch() >= Version("2.0.0"),
            "_TORCH_LESSER_2_3_0": lambda: _torch() < Version("2.3.0"),
            "_TORCH_LESSER_EQUAL_1_13_1": lambda: _torch() <= Version("1.13.1"),
        },
    )
