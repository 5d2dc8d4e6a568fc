"""Programs that a plan records, and programs that it cannot plan."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import os
import re
import resource
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from habana_frameworks.torch import core
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hpu_sim import plan
from hpu_sim.device import runtime
from hpu_sim.plan.execution import record, record_call
from hpu_sim.plan.options import Options

from .programs import MODELS, bytes_of, planned, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hpu_sim.prediction.recording import Recording

pytestmark = pytest.mark.needs_torch("2.8", "interfaces for the planner")


def _plan(step: Callable[[torch.Tensor], object]) -> Recording:
    def program() -> None:
        for _ in range(3):
            with plan.step():
                step(torch.ones(4, device="hpu"))

    return record_call(program, Options())


def test_step_has_no_effect_without_a_plan() -> None:
    with plan.step():
        value = torch.ones(2, device="hpu").sum().item()

    assert value == 2


def test_the_program_ends_after_its_steps() -> None:
    begun: list[torch.Tensor] = []

    recording = _plan(begun.append)

    assert len(begun) == len(recording.steps) == 2


def test_parameters_stay_shared() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = nn.Sequential(first, second)

    def program() -> None:
        model.to("hpu")
        with plan.step():
            pass

    record_call(program, Options())

    assert first.weight is second.weight
    assert first.weight.device.type == "hpu"


def test_frozen_parameters_have_no_gradients() -> None:
    """Only the trained layer has a gradient, as with adapters."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(requires_grad=False)

    def program() -> None:
        model.to("hpu")
        with plan.step():
            model(torch.ones(1, 4, device="hpu")).sum().backward()

    recording = record_call(program, Options())

    assert (recording.parameters, recording.trainable) == (40, 20)
    assert model[0].weight.grad is None


@pytest.mark.parametrize(
    ("read", "operator", "assumed", "count"),
    [
        pytest.param(lambda x: x.sum().item(), "_local_scalar_dense", "1.0", 1, id="value"),
        pytest.param(lambda x: f"{x.sum():.2f}", "_local_scalar_dense", "1.0", 1, id="format"),
        pytest.param(lambda x: x.cpu().numpy(), "copy to host", "", 1, id="numpy"),
        pytest.param(print, "print", "", 1, id="print"),
        pytest.param(
            # On a card, it is a host sync. A compilation by torch turns the checks off for its process.
            lambda x: torch.distributions.Normal(x, x.exp(), validate_args=True).rsample(),
            "_local_scalar_dense",
            "True",
            2,
            id="distribution",
        ),
    ],
)
def test_a_read_names_its_line_and_what_is_assumed(
    read: Callable[[torch.Tensor], object], operator: str, assumed: str, count: int
) -> None:
    """The plan continues with a made-up value."""
    (found,) = _plan(read).host_reads

    assert found.location.startswith(f"{__file__}:")
    assert (found.operator, found.assumed, found.count) == (operator, assumed, count)


def test_a_shape_without_a_limit_is_refused() -> None:
    with pytest.raises(plan.PlanError, match=rf"{__file__}:\d+: the shape of the result of aten._unique2"):
        _plan(lambda x: x.unique())


def test_a_shape_that_depends_on_data_is_an_upper_limit() -> None:
    recording = _plan(lambda x: x[x > 0])

    (note,) = (each for each in recording.notes if "upper limit" in each)
    assert re.match(rf"{__file__}:\d+: aten.index.Tensor depends on data", note)
    assert [(read.operator, read.count) for read in recording.host_reads] == [("index", 1)]


def test_tokens_of_experts_are_balanced() -> None:
    recording = _plan(lambda x: torch.histc(x.flatten(), bins=2))

    assert any("aten.histc.default depends on data, and is planned as balanced" in note for note in recording.notes)


def test_an_operator_without_a_shape_function_is_refused(
    make_library: Callable[[str], torch.library.Library],
) -> None:
    library = make_library("hpu_sim_test_plan")
    library.define("custom(Tensor x) -> Tensor")
    library.impl("custom", lambda x: x, "CPU")

    with pytest.raises(plan.PlanError, match=r"register one with torch\.library\.register_fake"):
        _plan(torch.ops.hpu_sim_test_plan.custom)


def test_ddp_with_several_buckets_waits_for_each() -> None:
    """The reducer waits for the bucket of each layer after the last one has begun."""

    def program() -> None:
        layers = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to("hpu")
        model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.001)
        for _ in range(3):
            with plan.step():
                model(torch.ones(1, 64, device="hpu")).sum().backward()
                gc.collect()

    recording = record_call(program, Options(devices=2))

    assert len(recording.steady.collectives) == 4


def test_a_read_in_a_library_is_named_with_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as transformers' look at whether a mask is all ones."""
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "masks.py").write_text("def is_full(mask):\n    return bool(mask.all())\n")
    monkeypatch.syspath_prepend(str(package))
    masks = importlib.import_module("masks")

    def program() -> None:
        layer, mask = nn.Linear(1 << 12, 1 << 12).to("hpu"), torch.ones(8, device="hpu")
        for _ in range(2):
            with plan.step():
                layer(torch.ones(1 << 12, 1 << 12, device="hpu"))
                masks.is_full(mask)
                layer(torch.ones(1 << 12, 1 << 12, device="hpu"))

    (read,) = planned(record_call(program, Options()), "GAUDI2").host_reads

    assert read.location.startswith(f"{__file__}:")
    assert (read.within, read.source) == (f"{package / 'masks.py'}:2", "return bool(mask.all())")
    assert read.seconds > 0


def test_an_average_that_hccl_refuses_is_noted() -> None:
    def program() -> None:
        with plan.step():
            tensor = torch.ones(2, device="hpu").relu()
            dist.reduce_scatter(tensor, [tensor, tensor], op=dist.ReduceOp.AVG)

    (note,) = record_call(program, Options(devices=2)).notes

    assert "set_force_sum_reduction_for_comms(True)" in note


def test_memory_without_data_can_be_addressed() -> None:
    """Code in C++ that reads from an address finds zeros, and does not end the process."""
    import ctypes

    found: list[int] = []

    def read(data: torch.Tensor) -> None:
        large = data.new_empty(1 << 24)
        found.append(ctypes.c_int64.from_address(large.data_ptr()).value)

    _plan(read)

    assert found == [0, 0]


def test_large_weights_of_a_module_take_no_memory_of_the_host() -> None:
    """Initialization and copies between devices run on nothing."""

    def program() -> None:
        with plan.step():
            layer = nn.Linear(1 << 18, 1 << 16)
            nn.init.normal_(layer.weight)
            assert layer.weight.device.type == "cpu"
            layer.to("hpu").weight.cpu().mul_(2)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record_call(program, Options())

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_a_number_of_the_host_keeps_its_value() -> None:
    """Frameworks compare lengths and flags over ranks."""
    read: list[object] = []

    def program() -> None:
        with plan.step():
            lengths = torch.tensor([3, 5], device="hpu")
            flag = torch.tensor(1, device="hpu")
            dist.all_reduce(flag)
            read.extend((lengths.tolist(), bool(flag == 4), (lengths + 1).tolist()))

    record_call(program, Options(devices=4))

    assert read == [[3, 5], True, [4, 6]]


def test_a_program_without_a_step_is_refused() -> None:
    with pytest.raises(plan.PlanError, match="without a training step"):
        record_call(lambda: None, Options())


def test_an_error_of_the_program_is_its_own() -> None:
    def program() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        record_call(program, Options())


def test_a_script_has_its_arguments_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour.py").write_text("SIZE = 3\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import torch\n"
        "from hpu_sim import plan\n"
        "from neighbour import SIZE\n"
        "assert __name__ == '__main__'\n"
        "for _ in range(2):\n"
        "    with plan.step():\n"
        "        torch.ones(SIZE, int(sys.argv[1]), device='hpu').relu()\n"
    )

    recording = record(script, ["5"], Options())

    assert recording.steady.operations[-1].writes[0][1] == 3 * 5 * 4


def test_a_program_of_one_rank_may_have_a_process_group() -> None:
    """A script for torchrun reads its rank and makes a process group on one rank too."""

    def program() -> None:
        dist.init_process_group("hccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        with plan.step():
            dist.all_reduce(torch.ones(4, device="hpu").relu())

    recording = record_call(program, Options())

    assert [each.ranks for each in recording.steady.collectives] == [(0,)]
    assert not dist.is_initialized()


def test_a_monitored_barrier_waits_for_nobody() -> None:
    """Fabric's ``rank_zero_first`` has one; it is no collective of the device."""

    def program() -> None:
        with plan.step():
            dist.new_group(backend="gloo").monitored_barrier()
            torch.ones(4, device="hpu").relu()

    recording = record_call(program, Options(devices=4))

    assert recording.steady.operations
    assert not recording.steady.collectives


def test_a_plan_may_follow_another() -> None:
    """Each opens its own device, as if it were the first in the process."""

    def program() -> None:
        hccl = pytest.importorskip("hpu_core.hccl")
        hccl.select_device(2, int(os.environ["LOCAL_RANK"]))
        with plan.step():
            torch.ones(2, device="hpu").relu()

    for _ in range(2):
        assert record_call(program, Options(devices=2)).steady.operations


def test_manual_optimization_runs_backward_within_a_forward() -> None:
    """A module whose forward trains two optimizers keeps its place in the tree of modules."""

    class Trains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.critic = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.critic(self.generator(inputs)).mean().backward()
            loss: torch.Tensor = self.critic(inputs).mean()
            loss.backward()
            return loss

    def program() -> None:
        model = Trains().to("hpu")
        with plan.step():
            model(torch.ones(2, 4, device="hpu"))

    names = {each.module for each in record_call(program, Options()).steady.operations}

    assert "Trains.critic" in names


def _train(steps: int, batches: Iterable[torch.Tensor] | None = None, scaler: Any = None) -> list[torch.Tensor]:
    """Train in a loop without a mark, and return the batches that were drawn."""
    model = nn.Linear(4, 4).to("hpu")
    optimizer = torch.optim.AdamW(model.parameters())
    drawn = []
    for batch in batches if batches is not None else [torch.ones(2, 4)] * steps:
        drawn.append(batch)
        loss = model(batch.to("hpu")).sum()
        if not torch.isfinite(loss):
            raise SystemExit("the loss is not finite")
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
    return drawn


def test_a_loop_without_a_mark_is_planned_by_the_steps_of_its_optimizer() -> None:
    recording = record_call(functools.partial(_train, 10), Options())

    assert len(recording.steps) == 2
    assert [each.phase for each in recording.steady.operations if each.flops] == ["forward", "backward"]


def test_a_loop_of_one_step_without_a_mark_names_the_line_of_its_optimizer() -> None:
    with pytest.raises(plan.PlanError, match=rf"{__file__}:\d+: the program steps its optimizer once"):
        record_call(functools.partial(_train, 1), Options())


def test_a_grad_scaler_steps_its_optimizer() -> None:
    """No gradient is infinite, so the optimizer has its state."""
    recording = record_call(lambda: _train(10, scaler=torch.amp.GradScaler("hpu")), Options())

    assert "optimizer" in {each.phase for each in recording.steady.operations}
    assert bytes_of(recording.steady, "optimizer state") >= 2 * 4 * 20


def test_a_batch_of_another_size_takes_no_memory_of_the_host() -> None:
    """A million samples of 150 528 numbers would be 602 GB."""
    drawn: list[torch.Tensor] = []

    def program() -> None:
        for (batch,) in DataLoader(TensorDataset(torch.rand(4, 3, 224, 224)), batch_size=2):
            drawn.append(batch)
            with plan.step():
                batch.to("hpu").relu()

    recording = record_call(program, Options(batch_size=1_000_000))

    assert drawn[0].untyped_storage().nbytes() <= 2 * 3 * 224 * 224 * 4
    assert recording.steady.inputs[0][1] == (1_000_000, 3, 224, 224)


def test_batches_that_cannot_get_another_size_are_refused() -> None:
    with pytest.raises(plan.PlanError, match="must come from a DataLoader of torch"):
        record_call(functools.partial(_train, 10), Options(batch_size=8))


def test_blocks_of_a_loop_without_a_mark_are_recomputed() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.tanh(torch.tanh(self.layer(inputs)))

    def program() -> None:
        model = nn.Sequential(*[Block() for _ in range(4)]).to("hpu")
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            model(torch.ones(1024, 64, device="hpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    peaks = [bytes_of(record_call(program, Options(checkpoint=count)).steady) for count in (0, 4)]

    assert peaks[1] < 0.75 * peaks[0]


def test_accumulated_batches_are_counted() -> None:
    def program() -> None:
        batches = iter(DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=2))
        for _ in range(2):
            with plan.step():
                for _ in range(4):
                    next(batches)[0].to("hpu").relu()

    assert record_call(program, Options()).accumulate == 4


def test_tensors_on_two_devices_are_the_error_of_a_device() -> None:
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*hpu:0.*cpu"):
        _plan(lambda x: x @ torch.ones(4, 4))


def test_the_end_of_a_graph_is_counted() -> None:
    recording = _plan(lambda x: (x.relu(), core.mark_step(), x.relu()))

    assert recording.steady.graph_ends == [2]


def test_layers_of_the_transformer_engine_compute_in_float8() -> None:
    te = pytest.importorskip("habana_frameworks.torch.hpex.experimental.transformer_engine")

    def program() -> None:
        model = te.Linear(32, 32).to("hpu")
        for _ in range(2):
            with plan.step(), te.fp8_autocast(enabled=True):
                model(torch.ones(16, 32, device="hpu")).sum().backward()

    recording = record_call(program, Options())

    assert [each.dtype for each in recording.steady.operations if each.flops] == ["float8"] * 3
    with pytest.raises(plan.PlanError, match="float8, which GAUDI does not have"):
        planned(recording, "GAUDI")


def test_a_module_keeps_its_name_in_a_wrapper() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.head(inputs)
            return outputs

    def program() -> None:
        inner = Model().to("hpu")
        inner(torch.ones(1, 4, device="hpu"))
        model = nn.parallel.DistributedDataParallel(inner)
        for _ in range(3):
            with plan.step():
                model(torch.ones(1, 4, device="hpu")).sum().backward()

    recording = record_call(program, Options(devices=2))

    assert {each.module for each in recording.steady.operations if each.flops} == {"Model.head"}
    assert recording.lines["Model.head"].startswith(__file__)


def test_a_custom_operator_of_others_needs_no_shape_function() -> None:
    @torch.library.custom_op("hpu_sim_test_plan::triple", mutates_args=())
    def triple(inputs: torch.Tensor) -> torch.Tensor:
        return inputs * 3

    recording = _plan(triple)

    assert [each.name for each in recording.steady.operations] == ["aten.fill_", "aten.mul"]


def test_a_module_compiled_within_counts_as_compiled() -> None:
    def program() -> None:
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1)).to("hpu")
        model[0].compile(backend="eager")
        with plan.step():
            model(torch.ones(2, 64, device="hpu")).sum().backward()

    assert record_call(program, Options()).compiled


def test_a_program_is_planned_as_compiled_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(runtime.active_config(), lazy=False)
    monkeypatch.setattr(runtime, "active_config", lambda: config)

    recording = record_call(lambda: train(MODELS["mlp"]), Options(compiled=True))

    assert recording.mode == "compile"


def test_lazy_mode_cannot_be_planned_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(runtime.active_config(), lazy=True)
    monkeypatch.setattr(runtime, "active_config", lambda: config)

    with pytest.raises(plan.PlanError, match="`--compile` needs eager mode, got lazy mode: set PT_HPU_LAZY_MODE=0"):
        record_call(lambda: train(MODELS["mlp"]), Options(compiled=True))


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
def test_a_callback_that_needs_a_number_of_epochs_is_planned() -> None:
    pytest.importorskip("hpu_core")
    import lightning
    from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset

    class Scheduled(BoringModel):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            steps = int(self.trainer.estimated_stepping_batches)
            return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)]

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(RandomDataset(32, 1))

    def program() -> None:
        trainer = lightning.Trainer(
            max_epochs=1, logger=False, callbacks=[lightning.pytorch.callbacks.StochasticWeightAveraging(0.1)]
        )
        trainer.fit(Scheduled())

    assert len(record_call(program, Options()).steps) == 2


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.7.1+cpu")

    with pytest.raises(plan.PlanError, match=r"needs torch 2\.8 or newer.*got 2\.7\.1"):
        record_call(lambda: None, Options())


def test_the_host_waits_where_it_synchronizes() -> None:
    def program() -> None:
        for _ in range(2):
            with plan.step():
                torch.ones(4, device="hpu").relu()
                torch.hpu.synchronize()  # type: ignore[attr-defined] # the bridge registers it

    recording = record_call(program, Options())

    assert [each.host_sync for each in recording.steady.operations] == [False, False, True]
    assert [each.operator for each in recording.host_reads] == ["synchronize"]
