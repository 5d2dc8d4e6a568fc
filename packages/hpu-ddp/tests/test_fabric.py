"""Fabric's strategies: before any rank has met another, on two simulated cards, and in programs of their own."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import hpu_sim
from hpu_core import HPUAccelerator, HPUCheckpointIO, bridge, frameworks
from hpu_ddp import FabricHPUDDPStrategy, FabricHPUParallelStrategy
from hpu_ddp._launchers import FabricHPUMultiProcessingLauncher
from hpu_ddp._lightning import FabricDDPStrategy, MisconfigurationException

from .conftest import OnRanks, Run
from .failure_helpers import RANK
from .modules import BATCHES, loader, weights

_lightning = frameworks.current()


@pytest.fixture
def place() -> Iterator[None]:
    """An environment that says nothing of ranks, put back as it was afterwards."""
    with mock.patch.dict(os.environ):
        for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        yield


def _fabric(**options: Any) -> Any:
    """Make Fabric for two ranks, and have them meet."""
    strategy = options.pop("strategy", None) or FabricHPUDDPStrategy()
    fabric = _lightning.fabric().Fabric(accelerator=HPUAccelerator(), strategy=strategy, devices=2, **options)
    fabric.launch()
    return fabric


def _network() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def _train(
    accumulate: int = 1, batches: int = BATCHES, **options: Any
) -> tuple[bytes, list[float], list[dict[str, int]]]:
    """Train for an epoch; return the weights, the losses, and the card's counters before each batch."""
    fabric = _fabric(**options)
    network = _network()
    network, optimizer = fabric.setup(network, torch.optim.SGD(network.parameters(), lr=0.1))
    losses, counters = [], []
    for index, (points, classes) in enumerate(fabric.setup_dataloaders(loader(batches))):
        counters.append(hpu_sim.stats())
        last = (index + 1) % accumulate == 0
        with fabric.no_backward_sync(network, enabled=not last):
            loss = torch.nn.functional.cross_entropy(network(points), classes)
            fabric.backward(loss)
        if last:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return weights(network), [float(loss) for loss in losses], counters


def _train_parallel() -> bytes:
    return _train(strategy=FabricHPUParallelStrategy())[0]


def _train_ddp() -> tuple[bytes, list[float]]:
    return _train()[:2]


def test_all_ranks_have_the_same_weights(on_ranks: OnRanks) -> None:
    """After training, every bit of every weight is the same on all ranks, though each saw other data."""
    (first, losses), (second, others) = on_ranks(_train_ddp)

    assert first == second
    assert first != weights(_network())
    assert not set(losses) & set(others)


def test_both_strategies_are_one(on_ranks: OnRanks) -> None:
    """The other name trains the same."""
    assert on_ranks(_train_parallel) == [trained for trained, _ in on_ranks(_train_ddp)]


def _collectives() -> list[int]:
    counters = _train(accumulate=3, batches=12)[2]
    return [after["collectives"] - before["collectives"] for before, after in itertools.pairwise(counters)]


def test_accumulation_exchanges_nothing_in_between(on_ranks: OnRanks) -> None:
    """Without synchronisation, backward is no collective."""
    # After the first exchange, torch also agrees on the order of the gradients.
    assert [counts[4:] for counts in on_ranks(_collectives)] == [[0, 1, 0, 0, 1, 0, 0]] * 2


def _graphs() -> list[int]:
    counters = _train()[2]
    return [after["graphs"] - before["graphs"] for before, after in itertools.pairwise(counters)]


def test_a_lazy_step_is_two_graphs(on_ranks: OnRanks) -> None:
    """Forward and backward are the one, which ends where gradients leave; the optimizer is the other."""
    assert [counts[2:] for counts in on_ranks(_graphs, lazy=True)] == [[2] * (BATCHES - 3)] * 2


def _exchange() -> tuple[float, int, list[float], str]:
    fabric = _fabric()
    rank = fabric.global_rank
    mean = fabric.all_reduce(torch.tensor(1.0 + rank, device="hpu"))
    total = fabric.all_reduce(torch.tensor(2**24 + 1, device="hpu"), reduce_op="sum")
    gathered = fabric.all_gather(torch.tensor(float(rank), device="hpu"))
    fabric.barrier()
    return float(mean), int(total), gathered.tolist(), fabric.broadcast(f"from {rank}", 1)


def test_ranks_exchange(on_ranks: OnRanks) -> None:
    """Means, exact integers, gathered tensors and objects."""
    assert on_ranks(_exchange) == [(1.5, 2**25 + 2, [0.0, 1.0], "from 1")] * 2


def _gather_with_gradients() -> list[float]:
    fabric = _fabric()
    value = torch.ones(2, device="hpu", requires_grad=True)
    fabric.all_gather(value, sync_grads=True).sum().backward()
    gradient: list[float] = value.grad.tolist() if value.grad is not None else []
    return gradient


def test_gradients_flow_back(on_ranks: OnRanks) -> None:
    """From the losses of both ranks."""
    assert on_ranks(_gather_with_gradients) == [[2.0, 2.0]] * 2


def _made_on_the_card() -> tuple[str, str, str]:
    fabric = _fabric()
    with fabric.init_module():
        network = _network()
    with fabric.init_tensor():
        tensor = torch.zeros(1)
    return next(network.parameters()).device.type, tensor.device.type, str(fabric.device)


@pytest.mark.skipif(not hasattr(_lightning.fabric().Fabric, "init_tensor"), reason="Requires: Lightning 2.1")
def test_modules_and_tensors_can_be_made_on_the_card(on_ranks: OnRanks) -> None:
    """`init_module` and `init_tensor` make them where they are needed, on a card without an index."""
    assert on_ranks(_made_on_the_card) == [("hpu", "hpu", "hpu")] * 2


def _checkpoint(folder: str) -> tuple[bool, str]:
    fabric = _fabric()
    network = fabric.setup(_network())
    path = Path(folder, "last.ckpt")
    fabric.save(path, {"network": network})
    other = fabric.setup(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)))
    fabric.load(path, {"network": other})
    content = torch.load(path, weights_only=True)["network"]
    return weights(network) == weights(other), content["0.weight"].device.type


def test_checkpoints_go_to_the_cpu_and_back(on_ranks: OnRanks, tmp_path: Path) -> None:
    """What one rank saves all can load, and so can a machine without a card."""
    assert on_ranks(_checkpoint, str(tmp_path)) == [(True, "cpu")] * 2


def _refusal(name: str) -> str:
    strategy = _fabric().strategy
    try:
        getattr(strategy, name)(torch.zeros(1))
    except ValueError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("name", ["all_reduce", "all_gather"])
def test_tensors_on_the_cpu_are_refused(name: str, on_ranks: OnRanks) -> None:
    """The strategy says so; Fabric itself moves them to the card first."""
    messages = on_ranks(_refusal, name)

    assert all(message.startswith("`tensor` must be on 'hpu'") for message in messages)


@pytest.mark.parametrize("start_method", ["popen", "spawn"])
def test_programs_start_their_ranks(start_method: str, run: Run) -> None:
    """As with the Trainer: the same script once more for each card, or processes of multiprocessing."""
    done = run("fabric.py", start_method)

    assert (done.code, done.leaked_pids) == (0, ()), done.output
    reports = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"rank"')]
    assert sorted(report["rank"] for report in reports) == [0, 1]
    assert len({report["weight"] for report in reports}) == 1


def test_an_error_ends_the_other_ranks(run: Run) -> None:
    """Though Fabric tells its strategy of no error: the end of the program does."""
    done = run("fabric.py", "popen", "fail")

    assert (done.code, done.leaked_pids) == (1, ())
    assert re.search(rf"RankFailedError: {RANK.format(rank=1)} failed: KeyError: 'no such luck'", done.output)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(FabricHPUParallelStrategy, "hpu_parallel"), (FabricHPUDDPStrategy, "hpu_ddp")],
    ids=["parallel", "ddp"],
)
def test_the_names_are_the_trainers(kind: type[FabricHPUParallelStrategy], name: str) -> None:
    """The registry makes each strategy from its string."""
    registry = _lightning.fabric("strategies.registry")._StrategyRegistry()

    kind.register_strategies(registry)

    assert type(registry.get(name)) is kind
    assert issubclass(kind, FabricDDPStrategy)


def test_the_defaults_are_the_trainers() -> None:
    """Intel's for DDP, HCCL, and checkpoints for any machine."""
    strategy = FabricHPUDDPStrategy(static_graph=True)

    options = {"bucket_cap_mb": 230, "gradient_as_bucket_view": True, "find_unused_parameters": False}
    assert strategy._ddp_kwargs == {**options, "static_graph": True}
    assert strategy.process_group_backend == "hccl"
    assert isinstance(strategy.checkpoint_io, HPUCheckpointIO)


def test_the_users_plugin_stays() -> None:
    """A checkpoint plugin is kept, whether it was passed or assigned."""
    plugin = HPUCheckpointIO()
    strategy = FabricHPUDDPStrategy()
    strategy.checkpoint_io = plugin

    assert strategy.checkpoint_io is plugin
    assert FabricHPUDDPStrategy(checkpoint_io=plugin).checkpoint_io is plugin


@pytest.mark.usefixtures("place")
def test_another_accelerator_is_refused() -> None:
    """Where devices were given by hand and the accelerator was not, the error says which to pass."""
    strategy = FabricHPUDDPStrategy(parallel_devices=[torch.device("hpu")])
    strategy.accelerator = _lightning.fabric("accelerators").CPUAccelerator()

    with pytest.raises(MisconfigurationException, match=r"got CPUAccelerator: pass `accelerator=hpu_core"):
        strategy.setup_environment()


def test_devices_of_another_kind_are_refused() -> None:
    """As by the Trainer's strategy."""
    with pytest.raises(ValueError, match="FabricHPUDDPStrategy trains on HPUs only"):
        FabricHPUDDPStrategy().parallel_devices = [torch.device("cpu")]


@pytest.mark.usefixtures("place")
def test_no_card_is_opened_to_start_processes() -> None:
    """`init_module` in a process that only starts others would take a card from them."""
    strategy = FabricHPUDDPStrategy(start_method="spawn", parallel_devices=[torch.device("hpu")] * 2)
    strategy.cluster_environment = _lightning.fabric("plugins.environments").LightningEnvironment()
    strategy._configure_launcher()

    for context in (strategy.tensor_init_context, strategy.module_init_context):
        with pytest.raises(RuntimeError, match=r"launches the ranks \(start_method='spawn'\)"):
            context()


@pytest.mark.usefixtures("place")
def test_notebooks_may_start_processes() -> None:
    """In any way that multiprocessing has."""
    strategy = FabricHPUDDPStrategy(start_method="spawn", parallel_devices=[torch.device("hpu")] * 2)
    strategy.cluster_environment = _lightning.fabric("plugins.environments").LightningEnvironment()
    strategy._configure_launcher()

    assert isinstance(strategy.launcher, FabricHPUMultiProcessingLauncher)
    assert strategy.launcher.is_interactive_compatible


def test_processes_are_not_started_beside_an_open_card() -> None:
    """The card would be missing."""
    launcher = FabricHPUMultiProcessingLauncher(FabricHPUDDPStrategy(start_method="spawn"))

    with (
        mock.patch.object(bridge, "is_open", return_value=True),
        pytest.raises(RuntimeError, match="this process has opened a card"),
    ):
        launcher.launch(print)


def test_without_other_ranks_nothing_is_exchanged() -> None:
    """Before the ranks have met, each collective returns what it got."""
    strategy, tensor = FabricHPUDDPStrategy(), torch.ones(2)
    strategy.barrier()

    assert strategy.all_reduce(tensor) is tensor
    assert strategy.all_gather(tensor) is tensor
    assert strategy.broadcast("text", 1) == "text"


def test_it_says_which_framework_it_is_for() -> None:
    """Its representation is what Lightning prints when it refuses it."""
    assert repr(FabricHPUDDPStrategy()).startswith(f"<FabricHPUDDPStrategy of {_lightning.name} ")
