"""Plans of programs with Lightning, which agree with runs of the same programs on simulated cards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpu_testing.fork_server import forks

ROOT = Path(__file__).parent.parent

_MODULE = """
import json, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import hpu_sim

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.hidden = nn.Linear(32, 64)
        self.head = nn.Linear(64, 100)

    def forward(self, tokens):
        return self.head(self.hidden(self.embedding(tokens)).relu())

tokens = torch.randint(0, 100, (64, 16))
data = DataLoader(TensorDataset(tokens), batch_size=8)

def loss_of(model, batch):
    return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[0].flatten())
"""

_TRAINER = (
    _MODULE
    + """
from lightning import LightningModule, Trainer

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Classifier()

    def training_step(self, batch, batch_idx):
        return loss_of(self.model, batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

trainer = Trainer(accelerator="hpu", devices="auto", max_steps=3, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Module(), data)
if trainer.is_global_zero:
    print(json.dumps(hpu_sim.stats()))
"""
)

_FABRIC = (
    _MODULE
    + """
from lightning import Fabric

fabric = Fabric(accelerator="hpu", devices=1)
fabric.launch()
model = Classifier()
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
for step, batch in enumerate(fabric.setup_dataloaders(data)):
    fabric.backward(loss_of(model, batch))
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        break
print(json.dumps(hpu_sim.stats()))
"""
)


def _run(script: Path, devices: int, folder: Path) -> dict[str, int]:
    """Return the counters of rank 0 at the end of a run on simulated cards."""
    command = [str(Path(sys.executable).with_name("hpu-sim")), "run", "--quiet", "--devices", str(devices), str(script)]
    environment = os.environ | {"HPU_SIM_RUNTIME_DIR": str(folder)}
    with forks():
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith('{"graphs"'))
    counters: dict[str, int] = json.loads(line)
    return counters


def _plan(folder: Path, *options: str) -> list[dict[str, Any]]:
    """Return the plans that the command writes."""
    path = folder / "plan.json"
    command = [str(Path(sys.executable).with_name("hpu-sim")), "plan", f"--json={path}", *options]
    with forks():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["strategies"]
    return found


_FSDP = _TRAINER.replace('devices="auto"', 'devices="auto", strategy="hpu_fsdp"')

_DEEPSPEED = (
    _TRAINER.replace("{", "{{")
    .replace("}", "}}")
    .replace('devices="auto"', 'devices="auto", precision="bf16-mixed", strategy="hpu_deepspeed_stage_{}"')
)

_TENSOR_PARALLEL = _TRAINER.replace(
    'devices="auto"', 'devices="auto", strategy=HPUModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=2)'
).replace(
    """
    def training_step""",
    """
    def configure_model(self):
        parallelize_module(
            self.model, self.device_mesh["tensor_parallel"], {"hidden": ColwiseParallel(), "head": RowwiseParallel()}
        )

    def training_step""",
)
_TENSOR_PARALLEL = f"""
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from hpu_fsdp import HPUModelParallelStrategy
{_TENSOR_PARALLEL}"""


@pytest.mark.parametrize(
    ("program", "devices"),
    [
        pytest.param(_TRAINER, 2, id="trainer", marks=pytest.mark.slow),
        pytest.param(_FSDP, 2, id="FSDP", marks=pytest.mark.slow),
        pytest.param(_TENSOR_PARALLEL, 2, id="tensor parallel", marks=pytest.mark.slow),
        pytest.param(_DEEPSPEED.format(1), 2, id="ZeRO-1", marks=pytest.mark.slow),
        pytest.param(_DEEPSPEED.format("2_offload"), 2, id="ZeRO-2, offloaded", marks=pytest.mark.slow),
        pytest.param(_DEEPSPEED.format(3), 2, id="ZeRO-3", marks=pytest.mark.slow),
        pytest.param(_FABRIC, 1, id="fabric"),
    ],
)
def test_peak_memory_is_that_of_a_run(program: str, devices: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(program)

    (planned,) = _plan(tmp_path, "--devices", str(devices), str(script))

    assert planned["memory"]["peak_bytes"] == pytest.approx(_run(script, devices, tmp_path)["peak_bytes"], rel=0.01)


def test_hpu_profiler_reports_the_predicted_step(tmp_path: Path) -> None:
    """The two packages share the trace file alone."""
    script, trace = tmp_path / "train.py", tmp_path / "plan.json"
    program = _TRAINER.replace(
        "return loss_of(self.model, batch)", "loss = loss_of(self.model, batch); loss.item(); return loss"
    )
    script.write_text(program)
    line = 1 + program[: program.index("loss.item()")].count("\n")
    bin_folder = Path(sys.executable).parent

    plan_command = [str(bin_folder / "hpu-sim"), "plan", "--devices", "8", "--trace", str(trace), str(script)]
    eager = os.environ | {"PT_HPU_LAZY_MODE": "0"}
    with forks():
        subprocess.run(plan_command, env=eager, capture_output=True, check=True)
    report_command = [str(bin_folder / "hpu-profiler"), "report", "--json", str(trace)]
    report = json.loads(subprocess.run(report_command, capture_output=True, text=True, check=True).stdout)

    (stage,) = report["stages"]
    findings = {each["kind"]: each for each in stage["findings"]}
    (rank,) = stage["ranks"]
    assert report["predicted"]
    assert stage["stage"] == "train"
    assert (rank["rank"], rank["world_size"], rank["steps"], rank["device_name"]) == (0, 8, 1, "GAUDI2")
    assert [each["name"] for each in rank["collectives"]] == ["hccl:allreduce"]
    assert {each["engine"] for each in rank["engines"]} == {"MME", "TPC", "NIC"}
    assert findings["host sync"]["location"].endswith(f"train.py:{line} training_step")
    assert findings["launch bound"]["predicted"]


def test_the_demo_is_planned_for_64_cards_and_two_strategies(tmp_path: Path) -> None:
    cards = ("--nodes", "8", "--devices", "8", "--generation", "GAUDI2,GAUDI3")
    plans = _plan(tmp_path, *cards, "--strategy", "auto,hpu_fsdp", str(ROOT / "docs" / "start" / "train.py"))

    assert [(each["strategy"], each["generation"]) for each in plans] == [
        (strategy, generation) for strategy in ("hpu_parallel", "hpu_fsdp") for generation in ("GAUDI2", "GAUDI3")
    ]
    (reduction,) = plans[0]["step"]["collectives"]
    assert (reduction["name"], reduction["ranks"], reduction["bytes"]) == ("allreduce", 64, 4 * 322)


_LLAMA = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
    "num_key_value_heads": 4, "intermediate_size": 256, "max_position_embeddings": 512,
}  # fmt: skip


def _plan_of_model(folder: Path, config: dict[str, Any], *options: str) -> dict[str, Any]:
    """Return the plan of a configuration of transformers on four cards."""
    pytest.importorskip("transformers")
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    more = ["--devices", "4", "--batch", "8", "--length", "128", *options]
    (found,) = _plan(folder, "--model", str(path), *more)
    return found


_LAYER = 4 * 128**2 + 3 * 128 * 256 + 2 * 128
_EMBEDDING = 256 * 128
_MOE = {"num_experts_per_tok": 2, "num_local_experts": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "parameters", "size"),
    [
        pytest.param(
            {"tie_word_embeddings": True, "torch_dtype": "float16"}, 2 * _LAYER + _EMBEDDING + 128, 2, id="tied heads"
        ),
        pytest.param(
            {"model_type": "mixtral", **_MOE},
            2 * (_LAYER + 3 * 3 * 128 * 256 + 4 * 128) + 2 * _EMBEDDING + 128,
            4,
            id="experts",
        ),
    ],
)
def test_a_model_has_the_weights_of_its_configuration(
    changes: dict[str, Any], parameters: int, size: int, tmp_path: Path
) -> None:
    """FSDP has a unit per block and one of the rest, and no line is one of the planner's own program."""
    planned = _plan_of_model(tmp_path, {**_LLAMA, **changes}, "--strategy", "hpu_fsdp")

    assert planned["parameters"] == planned["trainable"] == parameters
    assert planned["memory"]["at_peak"]["optimizer state"] == pytest.approx(2 * size * parameters / 4, rel=0.01)
    assert next(each["count"] for each in planned["step"]["collectives"] if each["phase"] == "forward") == 3
    assert any({2: "are bfloat16", 4: "are float32"}[size] in note for note in planned["notes"])
    assert "model_program" not in json.dumps(planned)


def test_tests_of_hpu_sim_that_need_hpu_core_pass(tmp_path: Path) -> None:
    """Its own suite has no other package, and skips them."""
    folder = ROOT / "packages/hpu-sim/tests/plan"
    names, passed = "apart or callback or may_follow or frameworks", 21
    files = [str(folder / f"test_{name}.py") for name in ("execution", "frameworks")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}", "-k", names]
    with forks():
        done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert f"{passed} passed" in done.stdout
    assert "skipped" not in done.stdout
