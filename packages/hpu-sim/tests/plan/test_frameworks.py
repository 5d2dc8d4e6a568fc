"""Programs with Lightning's Trainer and Fabric; tests/test_plan.py of the repository runs them with hpu-core."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_sim import plan
from hpu_sim.plan import frameworks
from hpu_sim.plan.compare import strategy_plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.options import Options
from hpu_sim.prediction.recording import Recording
from hpu_sim.prediction.time_model import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytest.importorskip("hpu_core")
pytest.importorskip("lightning", exc_type=ImportError)
import torchmetrics
from lightning import Fabric, LightningModule, Trainer
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger

from hpu_core import SingleHPUStrategy

from .programs import bytes_of

pytestmark = [
    pytest.mark.needs_torch("2.8", "interfaces for the planner"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
]


class _Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer: nn.Module = nn.Linear(16, 16)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def _fit(module: LightningModule, options: Options, data: Any = None, **kwargs: Any) -> Recording:
    data = data or DataLoader(TensorDataset(torch.rand(256, 16)), batch_size=4)
    kwargs = {"logger": False, **kwargs}
    return record_call(lambda: Trainer(accelerator="hpu", max_epochs=1, **kwargs).fit(module, data), options)


def test_memory_of_validation_is_noted_as_left_out() -> None:
    class Validated(_Module):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            del batch, batch_idx

        def val_dataloader(self) -> DataLoader[Any]:
            return DataLoader(TensorDataset(torch.rand(4, 16)))

    notes = [_fit(module, Options()).notes for module in (Validated(), _Module())]

    assert [any("Validation is left out" in note for note in each) for each in notes] == [True, False]


@pytest.mark.parametrize(("layers", "replicas"), [(8, 2), (1, 0), ("auto", 0)])
def test_ranks_that_divide_layers_share_batches(layers: int | str, replicas: int) -> None:
    """The strategy has its size from the start of training on; before, it may be "auto"."""
    strategy = SimpleNamespace(_tensor_parallel_size=layers)

    assert frameworks._replicas(strategy, Recording(world_size=16, devices=8)) == replicas


def test_a_logger_has_its_methods_and_writes_no_file(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Logged(_Module):
        def on_fit_start(self) -> None:
            assert self.logger is not None
            self.logger.log_hyperparams({"rate": 1})
            self.logger.experiment.add_text("note", "first")  # type: ignore[attr-defined] # of every logger here
            seen.append(self.logger)

    recording = _fit(Logged(), Options(), logger=CSVLogger(tmp_path), callbacks=[DeviceStatsMonitor()])

    assert len(recording.steps) == 2
    assert isinstance(seen[0], CSVLogger)
    assert not list(tmp_path.iterdir())


def test_the_configuration_of_a_command_line_is_not_saved(tmp_path: Path) -> None:
    pytest.importorskip("jsonargparse")
    from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback

    callback = SaveConfigCallback(LightningArgumentParser(), LightningArgumentParser().get_defaults())

    _fit(_Module(), Options(), default_root_dir=tmp_path, callbacks=[callback], logger=False)

    assert not list(tmp_path.iterdir())


def test_a_large_embedding_may_be_made_in_configure_model() -> None:
    class Late(_Module):
        def configure_model(self) -> None:
            if not hasattr(self, "embedding"):
                self.embedding = nn.Embedding(8192, 64)
                self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 1)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss: torch.Tensor = self.encoder(self.embedding(batch[0].long())).mean() + self.layer(batch[0]).mean()
            return loss

    recording = _fit(Late(), Options(devices=2, nodes=32), strategy="ddp")

    assert recording.parameters > 8192 * 64
    assert {each.ranks for each in recording.steady.collectives} == {tuple(range(64))}


def test_16_mixed_steps_its_optimizer() -> None:
    recording = _fit(_Module(), Options(), precision="16-mixed")

    assert bytes_of(recording.steady, "optimizer state") >= 2 * 4 * 272


def test_batches_get_another_size_on_the_device() -> None:
    """On the host, so many samples would be 32 TB."""
    recording = _fit(_Module(), Options(batch_size=500_000_000_000))

    assert recording.steady.inputs[0][1] == (500_000_000_000, 16)


class _OwnLoader:
    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        return iter([(torch.ones(4, 16),)] * 64)


@pytest.mark.parametrize("data", [None, _OwnLoader()], ids=["DataLoader", "another iterable"])
def test_accumulated_batches_of_the_trainer_are_counted(data: Any) -> None:
    recording = _fit(_Module(), Options(), data, accumulate_grad_batches=4)

    assert (recording.accumulate, recording.batch_size) == (4, 4)


def test_ranks_that_share_a_sequence_have_one_batch() -> None:
    """A strategy with `context_parallel_size` gives each rank a part of it."""

    class Text(_Module):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss: torch.Tensor = self.layer(batch[0].float()).mean()
            return loss

    strategy: Any = SingleHPUStrategy()
    strategy.context_parallel_size = 2
    data = DataLoader(TensorDataset(torch.zeros(16, 16, dtype=torch.long)), batch_size=2)
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}

    recording = record_call(
        lambda: Trainer(accelerator="hpu", devices=1, strategy=strategy, **options).fit(Text(), data),
        Options(),
    )

    recording = dataclasses.replace(recording, world_size=4)
    assert strategy_plan(Clock(dataclasses.replace(recording, replicas=2), "GAUDI2")).rate.tokens == 2 * 2 * 32
    assert recording.sequence_parts == 2


def test_the_option_fp8_gives_the_model_the_layers() -> None:
    pytest.importorskip("hpu_precision")
    recording = _fit(_Module(), Options(precision="fp8"))

    assert {each.dtype for each in recording.steady.operations if each.flops} == {"float8"}


def test_a_strategy_that_does_not_exist_is_an_error_of_the_option() -> None:
    with pytest.raises(plan.PlanError, match="`--strategy foo` is refused: "):
        _fit(_Module(), Options(strategy="foo"))


def test_blocks_are_recomputed_of_a_module_that_is_set_up_apart_from_its_optimizer() -> None:
    def program() -> None:
        fabric = Fabric(accelerator="hpu", devices=1)
        blocks = [nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Tanh()) for _ in range(8)]
        model = fabric.setup_module(nn.Sequential(*blocks))
        optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters()))
        for _ in range(3):
            fabric.backward(model(torch.ones(4096, 16, device="hpu")).sum())
            optimizer.step()  # type: ignore[union-attr] # of one optimizer

    peaks = [bytes_of(record_call(program, Options(checkpoint=count)).steady) for count in (0, 8)]

    assert peaks[1] < 0.75 * peaks[0]


class _Late(_Module):
    """Module whose blocks are made in `configure_model`."""

    def configure_model(self) -> None:
        self.layer = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Tanh()) for _ in range(8)])


def test_blocks_that_configure_model_makes_are_recomputed() -> None:
    peaks = [bytes_of(_fit(_Late(), Options(checkpoint=count, batch_size=4096)).steady) for count in (0, 8)]

    assert peaks[1] < 0.75 * peaks[0]


def test_a_metric_that_needs_values_is_left_out() -> None:
    class Distinct(torchmetrics.Metric):
        total: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.add_state("total", torch.zeros(1), dist_reduce_fx="sum")

        def update(self, values: torch.Tensor) -> None:
            self.total = self.total + values.unique().sum()

        def compute(self) -> Any:
            return self.total

    class Measured(_Module):
        def configure_model(self) -> None:
            self.metric = Distinct()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.metric.update(batch[0])
            return super().training_step(batch, batch_idx)

    recording = _fit(Measured(), Options())

    assert "The metric Distinct needs values, and is left out." in recording.notes


@pytest.mark.usefixtures("eager")
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_runs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage 3 reduces gradients to parts, copies them to the optimizer on the host, and gathers what comes back.

    It keeps process groups, and runs once in a process. Nothing is written to the folder that is no folder.
    """
    hpu_deepspeed = pytest.importorskip("hpu_deepspeed")
    # ZeRO-3 replaces it for the process.
    monkeypatch.setattr(nn.functional, "linear", nn.functional.linear)
    strategy = hpu_deepspeed.HPUDeepSpeedStrategy(
        stage=3, offload_optimizer=True, offload_optimizer_device="nvme", nvme_path="/dev/null", pin_memory=True
    )

    recording = _fit(_Module(), Options(devices=2), strategy=strategy, precision="bf16-mixed")

    calls = {(each.name, each.phase) for each in recording.steady.collectives}
    assert (recording.strategy, recording.parameters) == ("deepspeed_stage_3_offload", 272)
    assert {("reduce_scatter_base", "backward"), ("allgather_base", "optimizer")} <= calls
    assert bytes_of(recording.steady, "optimizer state") == 0
    assert not any("addcdiv" in each.name for each in recording.steady.operations)
    assert {"copy to host"} <= {each.operator for each in recording.host_reads}
    assert any("The optimizer runs on the host" in note for note in recording.notes)


def test_what_deepspeed_would_compile_or_write_is_kept_in_memory() -> None:
    offload = {"offload_optimizer": {"device": "nvme", "pin_memory": True}, "offload_param": {"device": "none"}}
    config: dict[str, Any] = {"zero_optimization": {"stage": 3, **offload}, "optimizer": {"type": "AdamW"}}

    frameworks.keep_in_memory(config)

    assert config["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert config["zero_optimization"]["offload_param"] == {"device": "none"}
    assert (config["optimizer"]["params"], config["zero_force_ds_cpu_optimizer"]) == ({"torch_adam": True}, False)
