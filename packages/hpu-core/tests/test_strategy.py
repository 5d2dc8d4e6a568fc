"""SingleHPUStrategy without a device: its arguments, its checkpoint plugin, and when it closes the graph."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, HPUCheckpointIO, SingleHPUStrategy, bridge, frameworks
from hpu_core._lightning import MisconfigurationException, SingleDeviceStrategy, TorchCheckpointIO
from hpu_core.fabric import FabricSingleHPUStrategy

if TYPE_CHECKING:
    from conftest import FakeBridge

_lightning = frameworks.current()

Hook = Callable[[SingleHPUStrategy], Any]


_HOOKS: dict[str, Hook] = {
    "post_backward": lambda strategy: strategy.post_backward(torch.tensor(0.0)),
    "optimizer_step": lambda strategy: strategy.optimizer_step(torch.optim.Adam([torch.zeros(1)]), lambda: None),
    "validation_step": lambda strategy: strategy.validation_step(),
    "on_validation_end": lambda strategy: strategy.on_validation_end(),
    "test_step": lambda strategy: strategy.test_step(),
    "predict_step": lambda strategy: strategy.predict_step(),
}


@pytest.fixture
def strategy(fake_bridge: "FakeBridge") -> SingleHPUStrategy:
    """A strategy that has its accelerator, as the Trainer leaves it before set-up."""
    return SingleHPUStrategy(accelerator=HPUAccelerator())


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of Lightning's own hooks in the order in which they are called; they do nothing else."""
    done: list[str] = []
    for name in _HOOKS:
        monkeypatch.setattr(SingleDeviceStrategy, name, lambda *args, name=name, **kwargs: done.append(name))
    return done


@pytest.mark.parametrize("device", ["hpu", "hpu:0", torch.device("hpu"), torch.device("hpu", 0)])
def test_the_device_has_no_index(device: Any) -> None:
    """However the one card is spelled, the root device is "hpu"."""
    assert SingleHPUStrategy(device).root_device == torch.device("hpu")


@pytest.mark.parametrize("device", ["cpu", torch.device("cuda", 0), "gaudi", None])
def test_another_device_is_refused(device: Any) -> None:
    """Anything but an HPU is an error that names it."""
    with pytest.raises(ValueError, match=r"`device` must be 'hpu', got "):
        SingleHPUStrategy(device)


def test_an_index_is_refused() -> None:
    """A card is not chosen by an index; the error says how."""
    with pytest.raises(ValueError, match=r"without an index, got 'hpu:1'.*HLS_MODULE_ID"):
        SingleHPUStrategy("hpu:1")


def test_it_derives_from_lightnings_strategy() -> None:
    """Lightning recognises it as a strategy for a single device."""
    assert isinstance(SingleHPUStrategy(), SingleDeviceStrategy)


def test_it_registers_as_hpu_single() -> None:
    """The registry makes the strategy from the string, also where Lightning brings its own."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()
    registry.register("hpu_single", SingleDeviceStrategy, description="Lightning 2.0's own")

    SingleHPUStrategy.register_strategies(registry)

    assert isinstance(registry.get("hpu_single"), SingleHPUStrategy)


def test_fabrics_twin_registers_as_hpu_single() -> None:
    """Fabric's registry makes Fabric's strategy from the same string."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()

    FabricSingleHPUStrategy.register_strategies(registry)

    assert isinstance(registry.get("hpu_single"), FabricSingleHPUStrategy)


def test_set_up_loads_the_bridge_and_opens_the_card(strategy: SingleHPUStrategy) -> None:
    """Neither happens before the Trainer sets up the environment."""
    before = (bridge.is_loaded(), bridge.is_open())
    strategy.setup_environment()

    assert before == (False, False)
    assert (bridge.is_loaded(), bridge.is_open()) == (True, True)


def test_set_up_honours_visible_modules(strategy: SingleHPUStrategy) -> None:
    """The card that is opened is one that HABANA_VISIBLE_MODULES allows."""
    os.environ["HABANA_VISIBLE_MODULES"] = "3"

    strategy.setup_environment()

    assert os.environ["HLS_MODULE_ID"] == "3"


@pytest.mark.skipif(_lightning.version < Version("2.1"), reason="Requires: Lightning 2.1, which added init_module")
def test_tensors_are_made_on_a_visible_card(strategy: SingleHPUStrategy) -> None:
    """`Trainer.init_module` opens a card before set-up, and it is one that HABANA_VISIBLE_MODULES allows."""
    os.environ["HABANA_VISIBLE_MODULES"] = "3"

    with strategy.tensor_init_context():
        loaded = bridge.is_loaded()

    assert (loaded, os.environ["HLS_MODULE_ID"]) == (True, "3")


def test_without_a_bridge_nothing_is_set(strategy: SingleHPUStrategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is missing, and no card has been chosen."""
    os.environ["HABANA_VISIBLE_MODULES"] = "3"
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)

    with pytest.raises(ModuleNotFoundError, match=r"bridge .* is not installed"):
        strategy.setup_environment()

    assert "HLS_MODULE_ID" not in os.environ


def test_another_accelerator_is_refused(strategy: SingleHPUStrategy) -> None:
    """`Trainer(strategy=SingleHPUStrategy())` alone comes with the CPU's accelerator; the error says what to add."""
    strategy.accelerator = _lightning.pytorch("accelerators").CPUAccelerator()

    with pytest.raises(MisconfigurationException, match=r"got CPUAccelerator: pass `accelerator=hpu_core"):
        strategy.setup_environment()


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("post_backward", ["post_backward", "mark"]),
        ("optimizer_step", ["optimizer_step", "mark"]),
        ("validation_step", ["mark", "validation_step"]),
        ("on_validation_end", ["on_validation_end", "mark"]),
        ("test_step", ["mark", "test_step"]),
        ("predict_step", ["mark", "predict_step"]),
    ],
)
def test_lazy_mode_closes_the_graph(
    name: str, order: list[str], strategy: SingleHPUStrategy, done: list[str], fake_bridge: "FakeBridge"
) -> None:
    """After backward, optimizer and validation, and before each evaluation step, the graph is closed once."""
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    fake_bridge.core.mark_step = lambda: done.append("mark")
    strategy.setup_environment()

    _HOOKS[name](strategy)

    assert done == order


@pytest.mark.parametrize("name", _HOOKS)
def test_eager_mode_calls_nothing(
    name: str, strategy: SingleHPUStrategy, done: list[str], fake_bridge: "FakeBridge"
) -> None:
    """In eager mode the bridge is not even asked."""
    fake_bridge.core.mark_step = lambda: done.append("mark")
    strategy.setup_environment()

    _HOOKS[name](strategy)

    assert done == [name]


@pytest.mark.parametrize("name", [name for name in _HOOKS if name.endswith("_step")])
def test_steps_return_what_lightnings_return(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Trainer gets the outputs of the module, and the closure's result from the optimizer."""
    monkeypatch.setattr(SingleDeviceStrategy, name, lambda *args, **kwargs: "output")

    assert _HOOKS[name](SingleHPUStrategy()) == "output"


def test_checkpoints_are_written_for_any_machine() -> None:
    """Without a plugin of the user's, it is HPUCheckpointIO."""
    assert isinstance(SingleHPUStrategy().checkpoint_io, HPUCheckpointIO)


@pytest.mark.parametrize("assign", [False, True])
def test_a_plugin_of_the_users_stays(assign: bool) -> None:
    """A plugin is kept, whether it was passed or the Trainer assigned it."""
    plugin = TorchCheckpointIO()
    strategy = SingleHPUStrategy(checkpoint_io=None if assign else plugin)
    if assign:
        strategy.checkpoint_io = plugin

    assert strategy.checkpoint_io is plugin
    assert not vars(plugin), "only a wrapper is given something to wrap"


def test_an_empty_wrapper_wraps_ours() -> None:
    """Lightning's asynchronous plugin without one to wrap gets HPUCheckpointIO."""
    wrapper = _lightning.pytorch("plugins.io").AsyncCheckpointIO()

    used: Any = SingleHPUStrategy(checkpoint_io=wrapper).checkpoint_io

    assert isinstance(used.checkpoint_io, HPUCheckpointIO)
    assert used is wrapper


def test_a_wrapper_keeps_what_the_user_wrapped() -> None:
    """A plugin inside a wrapper is the user's choice as well."""
    plugin = TorchCheckpointIO()
    wrapper = _lightning.pytorch("plugins.io").AsyncCheckpointIO(plugin)

    used: Any = SingleHPUStrategy(checkpoint_io=wrapper).checkpoint_io

    assert used.checkpoint_io is plugin
    assert used is wrapper


def test_several_devices_are_refused() -> None:
    """The Trainer assigns the devices it was asked for; training on one of eight must not go unnoticed."""
    with pytest.raises(MisconfigurationException, match="trains on one card, and the Trainer was asked for 8"):
        SingleHPUStrategy().parallel_devices = [torch.device("hpu")] * 8


def test_it_says_which_framework_it_is_for() -> None:
    """Its representation is what Lightning prints when it refuses it."""
    assert repr(SingleHPUStrategy()).startswith(f"<SingleHPUStrategy of {_lightning.name} ")
