"""Test that LightningCLI parses the arguments of every strategy as it parses those of Lightning's own."""

import inspect
import types
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import jsonargparse
import pytest
import torch

from hpu_core import frameworks, plugins

_TRAINER = frameworks.current().pytorch("strategies")
_FABRIC = frameworks.current().fabric("strategies")
_STRATEGIES = [
    ("hpu_core.strategy:SingleHPUStrategy", _TRAINER, "SingleDeviceStrategy"),
    ("hpu_core.fabric:FabricSingleHPUStrategy", _FABRIC, "SingleDeviceStrategy"),
    ("hpu_ddp.strategy:HPUDDPStrategy", _TRAINER, "DDPStrategy"),
    ("hpu_ddp.fabric:FabricHPUDDPStrategy", _FABRIC, "DDPStrategy"),
    ("hpu_fsdp.strategy:HPUFSDPStrategy", _TRAINER, "FSDPStrategy"),
    ("hpu_fsdp.fabric:FabricHPUFSDPStrategy", _FABRIC, "FSDPStrategy"),
    ("hpu_fsdp.model_parallel:HPUModelParallelStrategy", _TRAINER, "ModelParallelStrategy"),
    ("hpu_fsdp.fabric_model_parallel:FabricHPUModelParallelStrategy", _FABRIC, "ModelParallelStrategy"),
    ("hpu_deepspeed.strategy:HPUDeepSpeedStrategy", _TRAINER, "DeepSpeedStrategy"),
    ("hpu_deepspeed.fabric:FabricHPUDeepSpeedStrategy", _FABRIC, "DeepSpeedStrategy"),
]


def _arguments(kind: type) -> dict[str, Any]:
    """Return the types by which jsonargparse, and so LightningCLI, parses the arguments of a class."""
    from jsonargparse._parameter_resolvers import get_signature_parameters

    return {parameter.name: parameter.annotation for parameter in get_signature_parameters(kind, None)}


def _members(annotation: Any) -> set[Any]:
    """Return the members of a union, without the arguments of callables."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return set().union(*map(_members, get_args(annotation)))
    if annotation is Callable or get_origin(annotation) is Callable:
        return {Callable}
    # A Path is a PathLike, as which a strategy may take it.
    return {PathLike[str] if annotation is Path else annotation}


@pytest.mark.parametrize(("path", "package", "base"), _STRATEGIES, ids=[path for path, _, _ in _STRATEGIES])
def test_arguments_are_parsed_as_lightnings(path: str, package: Any, base: str) -> None:
    ours, theirs = _arguments(plugins.load(path)), _arguments(getattr(package, base))

    assert theirs.keys() - ours.keys() == set()
    for name, annotation in theirs.items():
        # Further arguments of torch's wrappers have no type there.
        if annotation is not inspect.Parameter.empty:
            assert _members(annotation) <= _members(ours[name]), name


def test_classes_of_a_configuration_are_a_wrap_policy() -> None:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(plugins.load("hpu_fsdp.strategy:HPUFSDPStrategy"), "strategy")
    parsed = parser.parse_object({"strategy": {"auto_wrap_policy": ["torch.nn.TransformerEncoderLayer"]}})

    assert parsed.strategy.auto_wrap_policy == {torch.nn.TransformerEncoderLayer}
