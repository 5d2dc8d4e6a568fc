"""Tests of the archived package's names, arguments and errors."""

import functools
import importlib
import inspect
import json
from importlib import resources
from typing import Any

import pytest
import torch

import hpu_compat._datamodule
import hpu_core.fabric
import hpu_data
import hpu_ddp
import hpu_deepspeed
import hpu_fsdp
import hpu_precision
import hpu_profiler
import lightning_habana
from hpu_core import frameworks

from .interface import ARGUMENTS, MODULES

_MISCONFIGURATION = frameworks.current().fabric("utilities.exceptions").MisconfigurationException

_NAMES = [(module, name) for module, names in MODULES.items() for name in names.split()]


def _get(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("module", "name"), _NAMES, ids=[".".join(pair) for pair in _NAMES])
def test_every_name_can_be_imported(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


@pytest.mark.parametrize("module", ["lightning_habana", "lightning_habana.pytorch", "lightning_habana.fabric"])
def test_all_is_that_of_the_archived_package(module: str) -> None:
    """`import *` imports the same names."""
    assert sorted(importlib.import_module(module).__all__) == sorted(MODULES[module].split())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lightning_habana.HPUAccelerator, hpu_core.HPUAccelerator),
        (lightning_habana.HPUCheckpointIO, hpu_core.HPUCheckpointIO),
        (lightning_habana.HPUDDPStrategy, hpu_ddp.HPUDDPStrategy),
        (lightning_habana.HPUDataModule, hpu_compat._datamodule.HPUDataModule),
        (lightning_habana.HPUDeepSpeedPrecisionPlugin, hpu_deepspeed.HPUDeepSpeedPrecisionPlugin),
        (lightning_habana.HPUDeepSpeedStrategy, hpu_deepspeed.HPUDeepSpeedStrategy),
        (lightning_habana.HPUFSDPPrecision, hpu_fsdp.HPUFSDPPrecision),
        (lightning_habana.HPUFSDPStrategy, hpu_fsdp.HPUFSDPStrategy),
        (lightning_habana.HPUParallelStrategy, hpu_ddp.HPUParallelStrategy),
        (lightning_habana.HPUPrecisionPlugin, hpu_precision.HPUPrecisionPlugin),
        (lightning_habana.HPUProfiler, hpu_profiler.HPUProfiler),
        (lightning_habana.SingleHPUStrategy, hpu_core.SingleHPUStrategy),
        (lightning_habana.fabric.HPUAccelerator, hpu_core.HPUAccelerator),
        (lightning_habana.fabric.HPUCheckpointIO, hpu_core.HPUCheckpointIO),
        (lightning_habana.fabric.HPUDDPStrategy, hpu_ddp.FabricHPUDDPStrategy),
        (lightning_habana.fabric.HPUFSDPStrategy, hpu_fsdp.FabricHPUFSDPStrategy),
        (_get("lightning_habana.fabric.plugins.HPUFSDPPrecision"), hpu_fsdp.FabricHPUFSDPPrecision),
        (lightning_habana.fabric.HPUParallelStrategy, hpu_ddp.FabricHPUParallelStrategy),
        (lightning_habana.fabric.HPUPrecision, hpu_precision.FabricHPUPrecision),
        (lightning_habana.fabric.SingleHPUStrategy, hpu_core.fabric.FabricSingleHPUStrategy),
    ],
)
def test_names_are_the_classes_that_strings_select(found: type, expected: type) -> None:
    """`isinstance` holds for objects that Lightning creates from a string."""
    assert found is expected


def _signature(cls: type) -> inspect.Signature:
    """Return the signature of the first constructor in the MRO without `*args`; those before it pass arguments on."""
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    signatures = (inspect.signature(functools.partial(constructor, None)) for constructor in constructors)
    return next(
        signature
        for signature in signatures
        if inspect.Parameter.VAR_POSITIONAL not in {p.kind for p in signature.parameters.values()}
    )


@pytest.mark.parametrize("path", ARGUMENTS)
def test_constructors_accept_the_same_arguments(path: str) -> None:
    """Positional arguments are also accepted by keyword."""
    positional, _, keyword = ARGUMENTS[path].partition(" * ")
    signature = _signature(_get(path))
    bound = signature.bind(*positional.split(), **{name: name for name in keyword.split()})
    bound_arguments = {**bound.arguments, **bound.arguments.get("kwargs", {})}

    assert all(bound_arguments[name] == name for name in positional.split())
    # Raises for an unknown name.
    signature.bind(**{name: name for name in ARGUMENTS[path].split() if name != "*"})


@pytest.mark.parametrize(("name", "default"), [("maxabs_measure", "measure"), ("maxabs_quant", "quantize")])
def test_default_configurations_of_fp8_are_those_of_hpu_precision(name: str, default: str) -> None:
    """Programs read them to change an entry."""
    file = resources.files("lightning_habana.pytorch.plugins.quant_config.fp8") / f"{name}.json"
    ours = resources.files("hpu_precision") / f"fp8_configs/{default}.json"

    assert json.loads(file.read_text()) == json.loads(ours.read_text())


@pytest.mark.parametrize("strategy", [lightning_habana.HPUDDPStrategy, lightning_habana.fabric.HPUDDPStrategy])
def test_an_accelerator_of_another_kind_is_an_error_of_the_archived_type(strategy: Any) -> None:
    with pytest.raises(_MISCONFIGURATION, match="needs an HPUAccelerator, got object"):
        strategy(accelerator=object()).setup_environment()


@pytest.mark.parametrize("strategy", [lightning_habana.HPUDDPStrategy, lightning_habana.fabric.HPUDDPStrategy])
def test_setup_hccl_env_can_be_overridden(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are set before the process group is created and the device is opened."""
    calls: list[str] = []
    accelerator = hpu_core.HPUAccelerator()
    monkeypatch.setattr(accelerator, "setup_device", lambda _: calls.append("setup_device"))
    monkeypatch.setattr(hpu_core.bridge, "mark_step_if_lazy", lambda: None)

    class Own(strategy):  # type: ignore[misc] # The class is a parameter.
        def setup_hccl_env(self) -> None:
            calls.append("setup_hccl_env")

        def join_ranks(self) -> None: ...

        def prepare_device(self) -> None: ...

    def init_process_group(_: Any) -> None:
        calls.append("init_process_group")
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)

    made: Any = Own(accelerator=accelerator)
    monkeypatch.setattr(made.process_groups, "init_process_group", init_process_group)
    made.cluster_environment = frameworks.current().fabric("plugins.environments").LightningEnvironment()
    made.parallel_devices = [torch.device("hpu")] * 2
    made.setup_environment()

    assert calls == ["setup_hccl_env", "init_process_group", "setup_device"]


def test_media_loaders_are_hpu_datas() -> None:
    """The archived module imported `HabanaDataLoader` of the vendor."""
    loader: Any = _get("lightning_habana.pytorch.datamodule.dataloaders.resnet_media_pipe.MediaApiDataLoader")

    assert issubclass(loader, hpu_data.DataLoader)
    assert _get("lightning_habana.pytorch.datamodule.datamodule.HabanaDataLoader") is loader
