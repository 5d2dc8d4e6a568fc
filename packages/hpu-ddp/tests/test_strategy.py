"""The Trainer's strategies before any rank has met another."""

import os
import pickle
from datetime import timedelta
from typing import Any, cast
from unittest import mock

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, HPUCheckpointIO, bridge, frameworks
from hpu_core.distributed.launcher import HPUSubprocessScriptLauncher
from hpu_core.strategy import HPUStrategy
from hpu_ddp import HPUDDPStrategy, HPUParallelStrategy
from hpu_ddp._launchers import HPUMultiProcessingLauncher
from hpu_ddp._lightning import DDPStrategy, MisconfigurationException

_lightning = frameworks.current()


@pytest.fixture(autouse=True)
def _place() -> Any:
    """An environment that says nothing of ranks, put back as it was afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


def _connected(strategy: HPUParallelStrategy, devices: int = 2) -> HPUParallelStrategy:
    """Do what the Trainer does with a strategy that it is given."""
    strategy.cluster_environment = _lightning.fabric("plugins.environments").LightningEnvironment()
    strategy.parallel_devices = [torch.device("hpu")] * devices
    strategy.set_world_ranks()
    strategy._configure_launcher()
    return strategy


@pytest.mark.parametrize(
    ("kind", "name"), [(HPUParallelStrategy, "hpu_parallel"), (HPUDDPStrategy, "hpu_ddp")], ids=["parallel", "ddp"]
)
def test_the_names_are_those_of_old(kind: type[HPUParallelStrategy], name: str) -> None:
    """The registry makes each strategy from its string, also where Lightning brings its own."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()
    registry.register(name, DDPStrategy, description="Lightning 2.0's own")

    kind.register_strategies(registry)

    assert type(registry.get(name)) is kind


@pytest.mark.parametrize("kind", [HPUParallelStrategy, HPUDDPStrategy])
def test_both_are_ddp(kind: type[HPUParallelStrategy]) -> None:
    """Lightning recognises each as DDP, and as a strategy for cards."""
    assert issubclass(kind, DDPStrategy)
    assert issubclass(kind, HPUStrategy)


def test_both_have_one_base() -> None:
    """Code that asks for an HPUParallelStrategy takes either."""
    assert isinstance(HPUDDPStrategy(), HPUParallelStrategy)


def test_checkpoints_are_written_for_any_machine() -> None:
    """Without a plugin of the user's, it is HPUCheckpointIO."""
    assert isinstance(HPUDDPStrategy().checkpoint_io, HPUCheckpointIO)


def test_lightnings_arguments_are_passed_on() -> None:
    """By position, too, in Lightning's order."""
    plugin = HPUCheckpointIO()
    cluster = _lightning.fabric("plugins.environments").LightningEnvironment()
    devices = [torch.device("hpu")] * 3
    strategy = HPUDDPStrategy(HPUAccelerator(), devices, cluster, plugin, timeout=timedelta(minutes=1))

    assert (strategy.num_processes, strategy.cluster_environment, strategy.checkpoint_io) == (3, cluster, plugin)


def test_further_arguments_are_ddps() -> None:
    """What is unknown here goes to torch, beside the defaults."""
    strategy = HPUDDPStrategy(static_graph=True, bucket_cap_mb=10)

    assert strategy._ddp_kwargs == {
        "static_graph": True,
        "bucket_cap_mb": 10,
        "gradient_as_bucket_view": True,
        "find_unused_parameters": False,
    }


def test_the_backend_is_hccl() -> None:
    """Where nothing else is said."""
    assert HPUDDPStrategy(process_group_backend=None).process_group_backend == "hccl"


def test_an_unknown_backend_is_refused() -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match="`process_group_backend` must be 'hccl'"):
        HPUDDPStrategy(process_group_backend="gloo")


def test_devices_of_another_kind_are_refused() -> None:
    """The Trainer assigns the CPU's where it was not given the accelerator; the error says what to pass."""
    with pytest.raises(ValueError, match=r"HPUDDPStrategy trains on HPUs only.*accelerator=hpu_core\.HPUAccelerator"):
        HPUDDPStrategy().parallel_devices = [torch.device("cpu")] * 2


def test_another_accelerator_is_refused() -> None:
    """Where devices were given by hand and the accelerator was not, the error says which to pass."""
    strategy = _connected(HPUDDPStrategy())
    strategy.accelerator = _lightning.pytorch("accelerators").CPUAccelerator()

    with pytest.raises(MisconfigurationException, match=r"got CPUAccelerator: pass `accelerator=hpu_core"):
        strategy.setup_environment()


def test_ddp_is_told_no_device() -> None:
    """A card has no index."""
    strategy: Any = _connected(HPUDDPStrategy())

    assert strategy.determine_ddp_device_ids() is None
    assert strategy.root_device == torch.device("hpu")


def test_a_script_is_started_again_by_default() -> None:
    launcher = _connected(HPUDDPStrategy()).launcher

    assert isinstance(launcher, HPUSubprocessScriptLauncher)


def test_without_failure_detection_lightnings_launcher_observes_the_ranks() -> None:
    launcher = _connected(HPUDDPStrategy(failure_detection=False)).launcher

    assert type(launcher).__name__ == "_SubprocessScriptLauncher"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_notebooks_may_start_processes(method: Any) -> None:
    """In any way that multiprocessing has."""
    launcher = _connected(HPUDDPStrategy(start_method=method)).launcher

    assert isinstance(launcher, HPUMultiProcessingLauncher)
    assert launcher.is_interactive_compatible


def test_no_card_is_opened_to_start_processes() -> None:
    """`init_module` in a process that only starts others would take a card from them; the error says what to do."""
    strategy = _connected(HPUDDPStrategy(start_method="spawn"))

    with (
        pytest.raises(RuntimeError, match=r"launches the ranks \(start_method='spawn'\).*`configure_model`"),
        strategy.tensor_init_context(),
    ):
        pass


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_a_started_process_may_open_its_card() -> None:
    """There, `init_module` is what it is anywhere."""
    os.environ.update(LOCAL_RANK="1", MASTER_PORT="29500")
    strategy = _connected(HPUDDPStrategy(start_method="spawn"))

    with (
        mock.patch.object(bridge, "load") as load,
        mock.patch.object(bridge, "is_open", return_value=False),
        strategy.tensor_init_context(),
    ):
        pass

    load.assert_called_once_with()
    assert os.environ.pop("HLS_MODULE_ID") == "1"


def test_the_environment_is_validated_before_ranks_are_launched() -> None:
    """A submit script builds a Trainer for other machines, whose variables it does not have."""
    os.environ["NODE_RANK"] = "3"
    strategy = _connected(HPUDDPStrategy())

    with pytest.raises(ValueError, match="NODE_RANK must be below `num_nodes`, got 3"):
        cast("Any", strategy.launcher).launch(lambda: None)


def test_it_can_be_sent_to_another_process() -> None:
    """As "spawn" does."""
    sent = pickle.dumps(_connected(HPUDDPStrategy(start_method="spawn")))
    strategy = pickle.loads(sent)  # noqa: S301 - made in the line above.

    assert strategy.num_processes == 2


def test_it_says_which_framework_it_is_for() -> None:
    """Its representation is what Lightning prints when it refuses it."""
    assert repr(HPUDDPStrategy()).startswith(f"<HPUDDPStrategy of {_lightning.name} ")
