"""Tests of what is taken out of, or added to, the arguments of Lightning's strategies."""

from typing import Any

import pytest

from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks
from hpu_core._lightning import SingleDeviceStrategy
from hpu_core.arguments import constructor_arguments, supported_arguments


def test_constructor_arguments_are_those_that_lightning_keeps() -> None:
    """As private attributes, or as public ones."""
    theirs = SingleDeviceStrategy(accelerator=(accelerator := HPUAccelerator()))

    arguments = constructor_arguments(SingleHPUStrategy, theirs)

    assert arguments["accelerator"] is accelerator
    assert arguments.keys() <= {"accelerator", "checkpoint_io", "precision_plugin"}


def _method(state: Any, strict: bool = True) -> None:
    """Stand in for a method of an older Lightning."""


def test_arguments_that_lightning_lacks_are_dropped_at_their_default() -> None:
    assert supported_arguments(_method, strict=False, weights_only=None) == {"strict": False}


def test_arguments_that_lightning_lacks_are_rejected_if_set() -> None:
    version = frameworks.current().version

    with pytest.raises(TypeError, match=rf"^`weights_only` is not supported by Lightning {version}: upgrade Lightning"):
        supported_arguments(_method, weights_only=True)
