"""The archived package's names, arguments and errors."""

import functools
import importlib
import inspect
from typing import Any

import pytest
import torch

import hpu_compat._absent
import hpu_core.fabric
import hpu_ddp
import hpu_deepspeed
import hpu_precision
import hpu_profiler
import lightning_habana
import lightning_habana.fabric
import lightning_habana.pytorch
from hpu_core import frameworks
from hpu_core import plugins

from .interface import ARGUMENTS, MODULES

_MISCONFIGURATION = frameworks.current().fabric("utilities.exceptions").MisconfigurationException

_NAMES = [(module, name) for module, names in MODULES.items() for name in names]


def _get(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("module", "name"), _NAMES, ids=[".".join(pair) for pair in _NAMES])
def test_every_name_is_there(module: str, name: str) -> None:
    """What programs import from the archived package can be imported."""
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", ["lightning_habana", "lightning_habana.pytorch", "lightning_habana.fabric"])
def test_what_a_module_exports_is_what_it_had(module: str) -> None:
    """Neither more nor less, so that `import *` means the same."""
    assert sorted(importlib.import_module(module).__all__) == sorted(MODULES[module])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lightning_habana.HPUAccelerator, hpu_core.HPUAccelerator),
        (lightning_habana.HPUCheckpointIO, hpu_core.HPUCheckpointIO),
        (lightning_habana.HPUDDPStrategy, hpu_ddp.HPUDDPStrategy),
        (lightning_habana.HPUDataModule, hpu_compat._absent.HPUDataModule),
        (lightning_habana.HPUDeepSpeedPrecisionPlugin, hpu_deepspeed.HPUDeepSpeedPrecisionPlugin),
        (lightning_habana.HPUDeepSpeedStrategy, hpu_deepspeed.HPUDeepSpeedStrategy),
        (lightning_habana.HPUFSDPPrecision, hpu_compat._absent.HPUFSDPPrecision),
        (lightning_habana.HPUFSDPStrategy, hpu_compat._absent.HPUFSDPStrategy),
        (lightning_habana.HPUParallelStrategy, hpu_ddp.HPUParallelStrategy),
        (lightning_habana.HPUPrecisionPlugin, hpu_precision.HPUPrecisionPlugin),
        (lightning_habana.HPUProfiler, hpu_profiler.HPUProfiler),
        (lightning_habana.SingleHPUStrategy, hpu_core.SingleHPUStrategy),
        (lightning_habana.fabric.HPUAccelerator, hpu_core.HPUAccelerator),
        (lightning_habana.fabric.HPUCheckpointIO, hpu_core.HPUCheckpointIO),
        (lightning_habana.fabric.HPUDDPStrategy, hpu_ddp.FabricHPUDDPStrategy),
        (lightning_habana.fabric.HPUParallelStrategy, hpu_ddp.FabricHPUParallelStrategy),
        (lightning_habana.fabric.HPUPrecision, hpu_precision.FabricHPUPrecision),
        (lightning_habana.fabric.SingleHPUStrategy, hpu_core.fabric.FabricSingleHPUStrategy),
    ],
)
def test_names_are_the_classes_that_strings_give(found: type, expected: type) -> None:
    """An `isinstance` holds however the object was asked for."""
    assert found is expected


def _signature(kind: type) -> inspect.Signature:
    """Return the signature of the first constructor that names its arguments; others pass them on to it."""
    constructors = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    every = (inspect.signature(functools.partial(constructor, None)) for constructor in constructors)
    return next(
        one for one in every if inspect.Parameter.VAR_POSITIONAL not in {p.kind for p in one.parameters.values()}
    )


@pytest.mark.parametrize("path", ARGUMENTS)
def test_constructors_take_the_same_arguments(path: str) -> None:
    """By position and by keyword."""
    positional, _, keyword = ARGUMENTS[path].partition(" * ")
    signature = _signature(_get(path))
    bound = signature.bind(*positional.split(), **{name: name for name in keyword.split()})
    bound_arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}

    assert all(bound_arguments[name] == name for name in positional.split())
    # Raises an error where one of them is not known.
    signature.bind(**{name: name for name in ARGUMENTS[path].split() if name != "*"})


@pytest.mark.parametrize("devices", [[0, 2], 1.5, "two"])
def test_devices_that_cannot_be_honoured(devices: Any) -> None:
    """They are a MisconfigurationException."""
    with pytest.raises(_MISCONFIGURATION, match="`devices`"):
        lightning_habana.HPUAccelerator.parse_devices(devices)


@pytest.mark.parametrize("error", [_MISCONFIGURATION, ValueError])
def test_another_device_is_refused(error: type[Exception]) -> None:
    """The Trainer's accelerator raised a MisconfigurationException for it, Fabric's a ValueError."""
    with pytest.raises(error, match="the strategy's device must be 'hpu' for HPUAccelerator, got 'cpu'"):
        lightning_habana.fabric.HPUAccelerator().setup_device(torch.device("cpu"))


def test_devices_have_no_index() -> None:
    """Programs compare them with `torch.device("hpu")`."""
    assert lightning_habana.HPUAccelerator.get_parallel_devices(2) == [torch.device("hpu")] * 2


@pytest.mark.parametrize("plugin", [lightning_habana.HPUPrecisionPlugin, lightning_habana.fabric.HPUPrecision])
def test_an_unknown_precision_is_a_value_error(plugin: Any) -> None:
    """As it was."""
    with pytest.raises(ValueError, match="precision"):
        plugin("int4", device="hpu")


def test_storage_options_are_a_type_error(tmp_path: Any) -> None:
    """As it was."""
    with pytest.raises(TypeError, match="`storage_options` is not supported"):
        lightning_habana.HPUCheckpointIO().save_checkpoint({}, tmp_path / "last.ckpt", storage_options={})


def test_strategies_register_by_their_names() -> None:
    """By the archived package's own way of registering."""
    registry = frameworks.current().fabric("strategies.registry")._StrategyRegistry()
    for name in ("SingleHPUStrategy", "HPUParallelStrategy", "HPUDDPStrategy"):
        getattr(lightning_habana, name).register_strategies(registry)

    assert sorted(registry) == ["hpu_ddp", "hpu_parallel", "hpu_single"]


def test_availability_is_hpu_cores() -> None:
    """Programs choose the accelerator by it."""
    assert lightning_habana.HPU_AVAILABLE is hpu_core.is_available()


def test_the_plugins_of_this_environment_are_the_ones_behind() -> None:
    """What strings give comes from the same packages."""
    assert {"hpu-ddp", "hpu-deepspeed", "hpu-precision", "hpu-profiler"} <= set(plugins.installed())
