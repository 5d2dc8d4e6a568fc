"""Tests of SingleHPUStrategy without a device: arguments and checkpoint plugin; simulated/test_graphs.py has graphs."""

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, HPUCheckpointIO, SingleHPUStrategy, bridge, frameworks
from hpu_core._lightning import (
    MisconfigurationException,
    SingleDeviceStrategy,
    TorchCheckpointIO,
    load_late_loader_states,
)
from hpu_core.strategy import set_module_device

if TYPE_CHECKING:
    from conftest import FakeBridge

_lightning = frameworks.current()


@pytest.fixture
def strategy(fake_bridge: "FakeBridge") -> SingleHPUStrategy:
    """Return a strategy before `setup_environment`, with its accelerator."""
    return SingleHPUStrategy(accelerator=HPUAccelerator())


@pytest.mark.parametrize("device", ["hpu", "hpu:0", torch.device("hpu"), torch.device("hpu", 0)])
def test_root_device_has_no_index(device: Any) -> None:
    assert SingleHPUStrategy(device).root_device == torch.device("hpu")


@pytest.mark.parametrize("device", ["cpu", torch.device("cuda", 0), "gaudi", None])
def test_other_device_raises_an_error(device: Any) -> None:
    with pytest.raises(ValueError, match=r"`device` must be 'hpu', got "):
        SingleHPUStrategy(device)


def test_device_index_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"without an index, got 'hpu:1'.*HLS_MODULE_ID"):
        SingleHPUStrategy("hpu:1")


def test_setup_environment_opens_the_device(strategy: SingleHPUStrategy) -> None:
    before = (bridge.is_loaded(), bridge.is_open())
    strategy.setup_environment()

    assert before == (False, False)
    assert (bridge.is_loaded(), bridge.is_open()) == (True, True)


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_tensor_init_context_selects_a_visible_module(strategy: SingleHPUStrategy) -> None:
    """`Trainer.init_module` opens a device before `setup_environment`."""
    os.environ["HABANA_VISIBLE_MODULES"] = "3"

    with strategy.tensor_init_context():
        loaded = bridge.is_loaded()

    assert (loaded, os.environ["HLS_MODULE_ID"]) == (True, "3")


def test_other_accelerator_raises_an_error(strategy: SingleHPUStrategy) -> None:
    """Without `accelerator`, Lightning selects the CPU's on this machine."""
    strategy.accelerator = _lightning.pytorch("accelerators").CPUAccelerator()

    with pytest.raises(MisconfigurationException, match=r"got CPUAccelerator: pass `accelerator=hpu_core"):
        strategy.setup_environment()


@pytest.mark.parametrize("assign", [False, True])
def test_checkpoint_io_is_kept(assign: bool) -> None:
    plugin = TorchCheckpointIO()
    strategy = SingleHPUStrategy(checkpoint_io=None if assign else plugin)
    if assign:
        strategy.checkpoint_io = plugin

    assert strategy.checkpoint_io is plugin
    assert not vars(plugin), "only a wrapper gets a plugin to wrap"


@pytest.mark.parametrize(("plugins", "kind"), [((), HPUCheckpointIO), ((TorchCheckpointIO(),), TorchCheckpointIO)])
def test_wrapper_wraps_hpu_checkpoint_io_unless_it_has_a_plugin(plugins: tuple[Any, ...], kind: type) -> None:
    wrapper = _lightning.pytorch("plugins.io").AsyncCheckpointIO(*plugins)

    used: Any = SingleHPUStrategy(checkpoint_io=wrapper).checkpoint_io

    assert type(used.checkpoint_io) is kind
    assert used is wrapper


def test_repr_names_the_framework() -> None:
    """Lightning prints the repr when it rejects a strategy of the other framework."""
    assert repr(SingleHPUStrategy()).startswith(f"<SingleHPUStrategy of {_lightning.name} ")


def test_module_device_is_set_without_a_move() -> None:
    """Canary of a private function of Lightning's, which Lightning 2.0 has as a method."""
    module: Any = _lightning.pytorch().LightningModule()
    module.part = _lightning.pytorch().LightningModule()

    set_module_device(module)

    assert module.device == module.part.device == torch.device("hpu", 0)


@pytest.mark.parametrize(("states", "loads"), [([{"position": 3}], 1), ([], 0)])
def test_positions_of_loaders_that_were_made_before_the_checkpoint_are_loaded(states: list[Any], loads: int) -> None:
    """`estimated_stepping_batches` in `configure_optimizers` makes them, and Lightning loads none after that."""
    fit_loop = mock.MagicMock(_combined_loader_states_to_load=states)
    load_late_loader_states(mock.Mock(fit_loop=fit_loop))

    assert fit_loop._load_combined_loader_states.call_count == fit_loop._data_fetcher.__iter__.call_count == loads


def test_lightning_has_the_names_for_positions() -> None:
    """Private names of Lightning: its fit loop keeps the positions until the loaders are made."""
    fit_loop = _lightning.pytorch().Trainer(accelerator="cpu", logger=False).fit_loop
    names = ("_combined_loader_states_to_load", "_load_combined_loader_states", "_data_fetcher")

    assert len({hasattr(fit_loop, name) for name in names[:2]}) == 1
    assert hasattr(fit_loop, names[2])


def test_strategy_registry() -> None:
    """Registration replaces Lightning's own strategy of this name."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()
    registry.register("hpu_single", SingleDeviceStrategy, description="Lightning 2.0's own")

    SingleHPUStrategy.register_strategies(registry)

    assert isinstance(registry.get("hpu_single"), SingleHPUStrategy)
