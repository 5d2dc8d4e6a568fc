"""Asynchronous saves with Fabric on two simulated devices; the helper functions run on both ranks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUAccelerator, frameworks
from hpu_fsdp import FabricHPUFSDPStrategy, FabricHPUModelParallelStrategy, _checkpoint
from hpu_testing.held_writes import held_writes

from .conftest import OnRanks
from .modules import UNITS, make_network

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

_Fabric = frameworks.current().fabric().Fabric
_KINDS = ["fsdp", "fsdp2"] if Version(torch.__version__) >= Version("2.9.dev0") else ["fsdp"]


def _strategy(kind: str) -> Any:
    if kind == "fsdp":
        return FabricHPUFSDPStrategy(auto_wrap_policy=set(UNITS), async_save=True)
    from torch.distributed.fsdp import fully_shard

    def parallelize(network: Any, mesh: Any) -> Any:
        return fully_shard(network, mesh=mesh["data_parallel"], reshard_after_forward=False)

    return FabricHPUModelParallelStrategy(parallelize, 2, 1, async_save=True)


class _Run:
    """Network, its optimizer and its steps."""

    def __init__(self, kind: str) -> None:
        self.fabric = _Fabric(accelerator=HPUAccelerator(), strategy=_strategy(kind), devices=2)
        self.fabric.launch()
        self.network = self.fabric.setup_module(make_network())
        self.optimizer = self.fabric.setup_optimizers(torch.optim.AdamW(self.network.parameters(), lr=0.01))

    def step(self) -> float:
        """Return the loss of a step."""
        self.optimizer.zero_grad()
        loss = self.network(torch.linspace(-1, 1, 128, device="hpu").view(2, 64)).square().mean()
        self.fabric.backward(loss)
        self.optimizer.step()
        return float(loss.detach())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"model": self.network, "optimizer": self.optimizer, "step": 2}


def _save_and_load(folder: Path, kind: str) -> dict[str, Any]:
    """Return losses after two steps and after loading, and whether the checkpoint was there before it could."""
    run = _Run(kind)
    run.step(), run.step()
    (folder / "saved").mkdir(exist_ok=True)
    (folder / "saved" / "tokenizer.json").touch()
    with held_writes() as may_write:
        run.fabric.save(folder / "saved", run.state())
        losses = [run.step(), run.step()]
        existed = (folder / "saved" / "meta.pt").exists()
        may_write.set()
        run.fabric.strategy.finish_save()
    files = sorted(path.name for path in folder.glob("*")) + [path.name for path in folder.glob("*/*.json")]
    loaded = _Run(kind)
    state = loaded.state() | {"step": 0}
    loaded.fabric.load(folder / "saved", state)
    return {
        "existed": existed,
        "files": files,
        "expected": losses,
        "loaded": [loaded.step(), loaded.step()],
        "step": state["step"],
    }


@pytest.mark.parametrize("kind", _KINDS)
def test_fabric_goes_on_while_a_checkpoint_is_written(kind: str, on_ranks: OnRanks, tmp_path: Path) -> None:
    """The checkpoint has the state of the time when it was saved; a file in its folder stays."""
    for result in on_ranks(_save_and_load, tmp_path, kind):
        assert not result["existed"]
        assert result["files"] == ["saved", "tokenizer.json"]
        assert result["loaded"] == result["expected"]
        assert result["step"] == 2


def _peak_of_a_copy() -> int:
    """Return the bytes by which the device's peak grows while a state is copied to host memory."""
    _Run("fsdp")
    weight, hpu = torch.ones(1 << 20, device="hpu"), vars(torch)["hpu"]
    hpu.reset_peak_memory_stats()
    before = hpu.max_memory_allocated()
    copied = _checkpoint._copy_to_cpu({"weight": weight})
    weight.zero_()
    assert copied["weight"].sum() == 1 << 20
    return int(hpu.max_memory_allocated() - before)


def test_a_copy_to_the_host_needs_no_memory_of_the_device(on_ranks: OnRanks) -> None:
    assert on_ranks(_peak_of_a_copy) == [0, 0]


@pytest.mark.parametrize("module", ["strategies.fsdp", "strategies.model_parallel"])
def test_lightning_has_the_private_name(module: str) -> None:
    """`sharded_saves` replaces it in both modules, of the Trainer and of Fabric."""
    framework = frameworks.current()
    for import_from in (framework.fabric, framework.pytorch):
        assert callable(import_from(module)._distributed_checkpoint_save)
