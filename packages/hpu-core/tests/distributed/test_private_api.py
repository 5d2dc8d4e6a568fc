"""Private names of Lightning that hpu_core.distributed overrides or reads: a rename would make ours dead code."""

import inspect
from typing import Any

import pytest
from packaging.version import Version
from torch.distributed import distributed_c10d

from hpu_core import frameworks
from hpu_core._lightning import FabricSubprocessScriptLauncher, SubprocessScriptLauncher, init_dist_connection
from hpu_core.distributed.signals import NOTIFIER, REQUEUER, SYNCHRONIZER

_framework = frameworks.current()
_fabric_parallel = _framework.fabric("strategies").DDPStrategy
_pytorch_parallel = _framework.pytorch("strategies").DDPStrategy
_connector = _framework.pytorch("trainer.connectors.signal_connector")._SignalConnector
_loop = _framework.pytorch("loops.training_epoch_loop")._TrainingEpochLoop


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (_fabric_parallel, "_configure_launcher", []),
        (_pytorch_parallel, "_configure_launcher", []),
        (_fabric_parallel, "_set_world_ranks", []),
        (_pytorch_parallel, "set_world_ranks", []),
        (SubprocessScriptLauncher, "_call_children_scripts", []),
        (FabricSubprocessScriptLauncher, "_call_children_scripts", []),
        (_connector, NOTIFIER, ["signum", None]),
        (_connector, REQUEUER, ["signum", None]),
    ],
)
def test_the_overridden_method_is_lightnings(owner: Any, name: str, parameters: list[str | None]) -> None:
    found = list(inspect.signature(getattr(owner, name)).parameters)[1:]

    assert [ours if ours is None else theirs for ours, theirs in zip(parameters, found, strict=True)] == parameters


def test_the_synchronization_before_each_batch_is_lightnings() -> None:
    """Lightning has it from 2.5.5 on."""
    assert hasattr(_loop, SYNCHRONIZER) is (_framework.version >= Version("2.5.5"))


def test_a_launcher_keeps_its_processes_in_a_list() -> None:
    cluster = _framework.fabric("plugins.environments").LightningEnvironment()
    assert SubprocessScriptLauncher(cluster, 1, 1).procs == []
    if _framework.version >= Version("2.1"):
        assert FabricSubprocessScriptLauncher(cluster, 1, 1).procs == []


def test_the_store_of_the_process_group_can_be_read() -> None:
    assert not inspect.signature(distributed_c10d._get_default_store).parameters


def test_the_process_group_takes_a_store() -> None:
    assert "kwargs" in inspect.signature(init_dist_connection).parameters
