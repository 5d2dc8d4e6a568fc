"""The strategies of the Trainer and of Fabric before the rendezvous."""

import os
import pickle
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_core.distributed.launcher import HPUSubprocessScriptLauncher
from hpu_ddp import FabricHPUDDPStrategy, FabricHPUParallelStrategy, HPUDDPStrategy, HPUParallelStrategy
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher, HPUMultiProcessingLauncher
from hpu_ddp._lightning import DDPStrategy

_lightning = frameworks.current()


@pytest.fixture(autouse=True)
def _clean_environment() -> Any:
    """Remove the variables of distributed jobs from the environment; restore it afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


_each_kind = pytest.mark.parametrize("kind", [HPUDDPStrategy, FabricHPUDDPStrategy])


def _connect(strategy: Any, devices: int = 2) -> Any:
    """Set up a strategy as the Trainer's accelerator connector, or Fabric's, does."""
    strategy.cluster_environment = _lightning.fabric("plugins.environments").LightningEnvironment()
    strategy.parallel_devices = [torch.device("hpu")] * devices
    strategy._set_rank()
    strategy._configure_launcher()
    return strategy


@pytest.mark.parametrize("kind", [FabricHPUDDPStrategy, FabricHPUParallelStrategy, HPUDDPStrategy, HPUParallelStrategy])
def test_strategy_registry(kind: Any) -> None:
    """Registration replaces Lightning's own strategies of these names, and each class has its own name."""
    name = kind.strategy_name
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()
    registry.register(name, DDPStrategy, description="Lightning 2.0's own")

    kind.register_strategies(registry)

    assert type(registry.get(name)) is kind
    assert name == ("hpu_parallel" if "Parallel" in kind.__name__ else "hpu_ddp")


@_each_kind
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bucket_cap_mb": 0}, ValueError, "`bucket_cap_mb` must be a positive number of MiB, got 0"),
        ({"start_method": "thread"}, ValueError, "`start_method` must be 'popen', .* or 'forkserver', got 'thread'"),
    ],
)
def test_invalid_arguments_raise_in_the_constructor(
    kind: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(**options)


@pytest.mark.parametrize("detects", [True, False])
def test_default_launcher_is_the_subprocess_launcher(detects: bool) -> None:
    """Without failure detection, ranks are left to Lightning's own observer. A device has no index."""
    strategy: Any = _connect(HPUDDPStrategy(failure_detection=detects))

    assert isinstance(strategy.launcher, HPUSubprocessScriptLauncher)
    assert (strategy.launcher.launched is not None) is detects
    assert strategy.determine_ddp_device_ids() is None
    assert strategy.root_device == torch.device("hpu")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("kind", "launcher_class"),
    [(HPUDDPStrategy, HPUMultiProcessingLauncher), (FabricHPUDDPStrategy, FabricHPUMultiProcessingLauncher)],
)
def test_launcher_is_interactive_compatible(kind: Any, launcher_class: Any, method: str) -> None:
    launcher = _connect(kind(start_method=method)).launcher

    assert isinstance(launcher, launcher_class)
    assert launcher.is_interactive_compatible


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        (HPUDDPStrategy, "tensor_init_context"),
        (FabricHPUDDPStrategy, "tensor_init_context"),
        (FabricHPUDDPStrategy, "module_init_context"),
    ],
)
def test_launching_process_opens_no_device(kind: Any, context: str) -> None:
    """`init_module` in the launching process would occupy a rank's device."""
    strategy = _connect(kind(start_method="spawn"))

    with pytest.raises(RuntimeError, match=r"launches the ranks \(start_method='spawn'\).*`configure_model`"):
        getattr(strategy, context)()


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_rank_opens_its_device_in_init_module() -> None:
    os.environ.update(LOCAL_RANK="1", MASTER_PORT="29500")
    strategy = _connect(HPUDDPStrategy(start_method="spawn"))

    with (
        mock.patch.object(bridge, "load") as load,
        mock.patch.object(bridge, "is_open", return_value=False),
        mock.patch.object(bridge, "mark_step_if_lazy"),
        strategy.tensor_init_context(),
    ):
        pass

    load.assert_called_once_with()
    assert os.environ.pop("HLS_MODULE_ID") == "1"


def test_strategy_is_picklable() -> None:
    """The start method "spawn" pickles the strategy."""
    pickled = pickle.dumps(_connect(HPUDDPStrategy(start_method="spawn")))
    strategy = pickle.loads(pickled)  # noqa: S301 - pickled in the line above.

    assert strategy.num_processes == 2
