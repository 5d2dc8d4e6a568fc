"""LightningModule with what a state dict can have, and strategies to train it with."""

from typing import Any

import torch
from torch.utils.data import DataLoader

from hpu_core import frameworks

_lightning = frameworks.current()
_pytorch: Any = _lightning.pytorch()

WIDTH = 10


class Network(torch.nn.Module):
    """Module with buffers, a scalar, frozen weights, and sizes that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(WIDTH, 7)
        self.norm = torch.nn.LayerNorm(7)
        self.register_buffer("scale", torch.rand(7))
        self.register_buffer("count", torch.tensor(5))
        self.hidden = torch.nn.Linear(7, 5)
        self.frozen = torch.nn.Linear(5, 5).requires_grad_(False)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the scores, (batch, 3)."""
        scores: torch.Tensor = self.head(self.frozen(self.hidden(self.norm(self.embed(points)) * self.scale)))
        return scores


def make_network() -> Network:
    """Return a network with the same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return Network()


class Module(_pytorch.LightningModule):  # type: ignore[misc] # The class depends on the framework.
    """LightningModule of the network, which keeps the weights that it has at the end of training."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_network()
        self.final: dict[str, torch.Tensor] = {}

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """Return a loss."""
        return self.model(batch).pow(2).mean()  # type: ignore[no-any-return] # Of a module.

    def configure_optimizers(self) -> Any:
        """Return an optimizer that has state."""
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=0.05)

    def on_train_end(self) -> None:
        """Keep the weights."""
        self.final = gather(self.trainer.strategy, self.model)


class ShardedModule(Module):
    """Module that shards itself by FSDP2."""

    _is_sharded = False

    def configure_model(self) -> None:
        """Shard the network, once."""
        if self._is_sharded:
            return
        from torch.distributed.fsdp import fully_shard

        mesh = self.device_mesh["data_parallel"]
        for layer in (self.model.embed, self.model.hidden, self.model.head):
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=False)
        self._is_sharded = True


def gather(strategy: Any, network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the whole weights of a module that a strategy has sharded, on every rank."""
    name = type(strategy).__name__
    if "DeepSpeed" in name:
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(network.parameters())):
            return _copy(network.state_dict())
    if "FSDP" in name:
        from torch.distributed.fsdp import FullyShardedDataParallel

        with FullyShardedDataParallel.summon_full_params(strategy.model, writeback=False):
            return _copy(network.state_dict())
    return _copy(network.state_dict())


def _copy(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    full = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in state.items()}
    names = {name: name.replace("_fsdp_wrapped_module.", "") for name in full}
    return {names[name]: tensor.detach().cpu().clone() for name, tensor in full.items()}


def make_strategy(kind: str, count: int) -> Any:
    """Return a strategy of the Trainer by name."""
    if kind == "ddp":
        from hpu_ddp import HPUDDPStrategy

        return HPUDDPStrategy()
    if kind in {"fsdp full", "fsdp sharded"}:
        from hpu_fsdp import HPUFSDPStrategy

        options: Any = {"state_dict_type": kind.split()[1], "use_orig_params": True}
        return HPUFSDPStrategy(auto_wrap_policy={torch.nn.Linear}, **options)
    if kind == "model parallel":
        from hpu_fsdp import HPUModelParallelStrategy

        return HPUModelParallelStrategy(data_parallel_size=count, tensor_parallel_size=1)
    from hpu_deepspeed import HPUDeepSpeedStrategy

    return HPUDeepSpeedStrategy(stage=int(kind.split()[1]))


def make_trainer(**options: Any) -> Any:
    """Return a Trainer of two steps without logger, checkpoints and progress bar; `options` are its arguments."""
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return _pytorch.Trainer(**{**defaults, **options})


def make_loader() -> DataLoader[torch.Tensor]:
    """Return a DataLoader of points, (4, WIDTH)."""
    points: Any = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(7))
    return DataLoader(points, batch_size=4)


def train(kind: str, count: int, **options: Any) -> tuple[Any, Module]:
    """Train on simulated devices; return the Trainer and the module."""
    trainer = make_trainer(accelerator="hpu", devices=count, strategy=make_strategy(kind, count), **options)
    module = ShardedModule() if kind == "model parallel" else Module()
    trainer.fit(module, make_loader())
    return trainer, module
