"""The Trainer's strategies before the rendezvous."""

import os
import pickle
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, HPUCheckpointIO, bridge, frameworks
from hpu_core.distributed.launcher import HPUSubprocessScriptLauncher
from hpu_core.strategy import HPUStrategy
from hpu_ddp import FabricHPUDDPStrategy, HPUDDPStrategy, HPUParallelStrategy
from hpu_ddp._launchers import HPUMultiProcessingLauncher
from hpu_ddp._lightning import DDPStrategy

_lightning = frameworks.current()
_MisconfigurationException = _lightning.fabric("utilities.exceptions").MisconfigurationException


@pytest.fixture(autouse=True)
def _clean_environment() -> Any:
    """Remove the variables of distributed jobs from the environment; restore it afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


def _connect(strategy: HPUParallelStrategy, devices: int = 2) -> HPUParallelStrategy:
    """Set up a strategy as the Trainer's accelerator connector does."""
    strategy.cluster_environment = _lightning.fabric("plugins.environments").LightningEnvironment()
    strategy.parallel_devices = [torch.device("hpu")] * devices
    strategy.set_world_ranks()
    strategy._configure_launcher()
    return strategy


@pytest.mark.parametrize("name", ["hpu_parallel", "hpu_ddp"])
def test_strategy_registry(name: str) -> None:
    """Registration replaces Lightning's own strategies of these names."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()
    registry.register(name, DDPStrategy, description="Lightning 2.0's own")

    HPUDDPStrategy.register_strategies(registry)

    assert type(registry.get(name)) is HPUDDPStrategy


def test_base_classes() -> None:
    assert issubclass(HPUDDPStrategy, DDPStrategy)
    assert issubclass(HPUDDPStrategy, HPUStrategy)
    assert HPUParallelStrategy is HPUDDPStrategy


def test_default_checkpoint_io() -> None:
    assert isinstance(HPUDDPStrategy().checkpoint_io, HPUCheckpointIO)


def test_positional_arguments_are_in_lightnings_order() -> None:
    plugin = HPUCheckpointIO()
    cluster = _lightning.fabric("plugins.environments").LightningEnvironment()
    devices = [torch.device("hpu")] * 3
    strategy = HPUDDPStrategy(HPUAccelerator(), devices, cluster, plugin, timeout=timedelta(minutes=1))

    assert (strategy.num_processes, strategy.cluster_environment, strategy.checkpoint_io) == (3, cluster, plugin)


def test_default_backend_is_hccl() -> None:
    assert HPUDDPStrategy(process_group_backend=None).process_group_backend == "hccl"


@pytest.mark.parametrize("kind", [HPUDDPStrategy, FabricHPUDDPStrategy])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bucket_cap_mb": 0}, ValueError, "`bucket_cap_mb` must be a positive number of MiB, got 0"),
        ({"bucket_cap_mb": "25"}, ValueError, "`bucket_cap_mb` must be a positive number of MiB, got '25'"),
        ({"start_method": "thread"}, ValueError, "`start_method` must be 'popen', .* or 'forkserver', got 'thread'"),
        ({"static_grap": True}, TypeError, "`static_grap` is not an argument of .*: did you mean `static_graph`"),
        ({"zzz": True}, TypeError, "`zzz` is not an argument of .*: see the arguments of DistributedDataParallel"),
    ],
)
def test_invalid_arguments_raise_in_the_constructor(
    kind: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(**options)


def test_cpu_backend_raises_an_error() -> None:
    with pytest.raises(ValueError, match="`process_group_backend` must be 'hccl'"):
        HPUDDPStrategy(process_group_backend="gloo")


def test_other_devices_raise_an_error() -> None:
    """The Trainer assigns CPU devices if it was not given the accelerator."""
    with pytest.raises(ValueError, match=r"HPUDDPStrategy trains on HPUs only.*accelerator=hpu_core\.HPUAccelerator"):
        HPUDDPStrategy().parallel_devices = [torch.device("cpu")] * 2


def test_other_accelerator_raises_an_error() -> None:
    strategy = _connect(HPUDDPStrategy())
    strategy.accelerator = _lightning.pytorch("accelerators").CPUAccelerator()

    with pytest.raises(_MisconfigurationException, match=r"got CPUAccelerator: pass `accelerator=hpu_core"):
        strategy.setup_environment()


def test_device_has_no_index() -> None:
    strategy: Any = _connect(HPUDDPStrategy())

    assert strategy.determine_ddp_device_ids() is None
    assert strategy.root_device == torch.device("hpu")


def test_default_launcher_is_the_subprocess_launcher() -> None:
    launcher = _connect(HPUDDPStrategy()).launcher

    assert isinstance(launcher, HPUSubprocessScriptLauncher)


def test_launcher_without_failure_detection_leaves_ranks_to_lightnings_observer() -> None:
    launcher = _connect(HPUDDPStrategy(failure_detection=False)).launcher

    assert isinstance(launcher, HPUSubprocessScriptLauncher)
    assert launcher.launched is None


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_launcher_is_interactive_compatible(method: Any) -> None:
    launcher = _connect(HPUDDPStrategy(start_method=method)).launcher

    assert isinstance(launcher, HPUMultiProcessingLauncher)
    assert launcher.is_interactive_compatible


def test_launching_process_opens_no_device() -> None:
    """`init_module` in the launching process would occupy a rank's device."""
    strategy = _connect(HPUDDPStrategy(start_method="spawn"))

    with (
        pytest.raises(RuntimeError, match=r"launches the ranks \(start_method='spawn'\).*`configure_model`"),
        strategy.tensor_init_context(),
    ):
        pass


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


@pytest.mark.parametrize("method", ["popen", "spawn"])
def test_environment_is_validated_before_launch(method: Any) -> None:
    """The Trainer and Fabric configure the launcher in their constructors."""
    os.environ["NODE_RANK"] = "3"

    with pytest.raises(ValueError, match="NODE_RANK must be below `num_nodes`, got 3"):
        _connect(HPUDDPStrategy(start_method=method))


def test_strategy_is_picklable() -> None:
    """The start method "spawn" pickles the strategy."""
    pickled = pickle.dumps(_connect(HPUDDPStrategy(start_method="spawn")))
    strategy = pickle.loads(pickled)  # noqa: S301 - pickled in the line above.

    assert strategy.num_processes == 2


def test_repr_names_the_framework() -> None:
    """Lightning prints the repr when it rejects a strategy of the other framework."""
    assert repr(HPUDDPStrategy()).startswith(f"<HPUDDPStrategy of {_lightning.name} ")
