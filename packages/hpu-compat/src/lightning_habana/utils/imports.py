"""Version checks of the archived package, evaluated on first use."""

from collections.abc import Callable
from importlib import metadata, util

from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_core.lazy_exports import lazy_attributes
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


__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "_HABANA_FRAMEWORK_AVAILABLE": bridge.is_installed,
        "_HPU_SYNAPSE_GREATER_EQUAL_1_11_0": _synapse_from("1.11.0"),
        "_HPU_SYNAPSE_GREATER_EQUAL_1_14_0": _synapse_from("1.14.0"),
        "_HPU_SYNAPSE_GREATER_EQUAL_1_17_0": _synapse_from("1.17.0"),
        "_KINETO_AVAILABLE": _kineto,
        "_LIGHTNING_GREATER_EQUAL_2_0_0": _lightning_from("2.0.0"),
        "_LIGHTNING_GREATER_EQUAL_2_3_0": _lightning_from("2.3.0"),
        "_TORCHVISION_AVAILABLE": lambda: util.find_spec("torchvision") is not None,
        "_TORCH_GREATER_EQUAL_2_0_0": lambda: _torch() >= Version("2.0.0"),
        "_TORCH_LESSER_2_3_0": lambda: _torch() < Version("2.3.0"),
        "_TORCH_LESSER_EQUAL_1_13_1": lambda: _torch() <= Version("1.13.1"),
    },
)
