"""Warm-up, monitor and HPU graphs in lazy mode."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from hpu_bucketing import HPUGraphs, HPUWarmup, RecompilationMonitor, RecompilationWarning
from hpu_core import HPUAccelerator, SingleHPUStrategy, bridge, frameworks

from ..modules import VOCABULARY, Embeddings, loader, trainer  # noqa: TID252 - pytest gives tests no absolute name

_callbacks: Any = frameworks.current().pytorch("callbacks")


class Plain(Embeddings):
    """Model without dropout and batch normalization, so that runs can be compared."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(VOCABULARY, width)
        self.body = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, VOCABULARY)
        )
        self.losses: list[torch.Tensor] = []
        self.outputs: list[torch.Tensor] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        logits = self.body(self._mean(batch))
        loss = torch.nn.functional.cross_entropy(logits, batch["input_ids"][:, 0])
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.losses.append(loss.detach())
        self.outputs.append(logits.detach())
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        self.outputs.append(self.body(self._mean(batch)))

    def _mean(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        weights = batch["attention_mask"].unsqueeze(-1).float()
        mean: torch.Tensor = (self.embedding(batch["input_ids"]) * weights).sum(dim=1) / weights.sum(dim=1)
        return mean


class Counts(_callbacks.Callback):  # type: ignore[misc] # chosen at run time
    """Callback that notes the number of compilations after each step."""

    def __init__(self) -> None:
        self.counts: list[Any] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.counts.append(bridge.metric("graph_compilation")["TotalNumber"])


def _trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    device = {"accelerator": HPUAccelerator(), "strategy": SingleHPUStrategy()}
    return trainer(folder, callbacks=list(callbacks), **{"max_epochs": 1, **device, **options})


def _fit(folder: Path, *callbacks: Any, model: Any = None, **options: Any) -> Any:
    model = model or Plain()
    _trainer(folder, *callbacks, **options).fit(model, loader(shuffle=True), loader(shuffle=False))
    return model


def _values(tensors: list[torch.Tensor]) -> list[Any]:
    return [tensor.cpu().tolist() for tensor in tensors]


@pytest.mark.parametrize(("width", "accumulate"), [(9, 1), (10, 3)])
def test_nothing_compiles_after_warm_up(width: int, accumulate: int, tmp_path: Path) -> None:
    """Without it, each bucket compiles at its first batch. No other test has these widths."""
    counts, monitor, warmup = Counts(), RecompilationMonitor("error"), HPUWarmup()
    options = {"accumulate_grad_batches": accumulate, "max_epochs": 2, "limit_val_batches": 0, "log_every_n_steps": 1}
    # The optimizer's graphs compile at its first steps.
    grace = 2 * accumulate

    _fit(tmp_path, warmup, monitor, counts, model=Plain(width), **options)

    assert all(record.compilations for record in warmup.records)
    # An epoch has ten batches. Between epochs, the mean of the logged losses compiles.
    assert len(set(counts.counts[grace - 1 : 10])) == 1
    assert len(set(counts.counts[10:])) == 1


def test_without_warm_up_each_bucket_compiles(tmp_path: Path) -> None:
    counts, monitor = Counts(), RecompilationMonitor()

    _fit(tmp_path, monitor, counts, model=Plain(11), limit_val_batches=0)

    assert monitor.violations == []
    assert len(set(counts.counts)) >= 3


def test_compilation_of_the_model_is_reported(tmp_path: Path) -> None:
    class Growing(Plain):
        def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
            return (
                super().training_step(batch, batch_idx) + 0 * torch.ones(self.global_step + 1, device=self.device).sum()
            )

    with pytest.warns(RecompilationWarning, match=r"compiled after the warm-up \(simulated\).*no tensor of the batch"):
        _fit(tmp_path, HPUWarmup(), RecompilationMonitor(), model=Growing(12), limit_val_batches=0)


def test_random_numbers_of_the_device_are_restored(tmp_path: Path) -> None:
    states = []
    for callbacks in ([], [HPUWarmup()]):
        torch.manual_seed(1)
        model = Embeddings()
        _trainer(tmp_path, *callbacks, max_steps=3, limit_val_batches=0).fit(model, loader())
        states.append({name: value.cpu() for name, value in model.state_dict().items()})

    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.01}],
    ids=["plain", "accumulation", "clipping"],
)
def test_training_with_graphs_equals_training_without(options: dict[str, Any], tmp_path: Path) -> None:
    """Gradients that are accumulated, and clipped in place, are not those in the tensors of the capture."""
    plain = _fit(tmp_path, **options)
    graphs = _fit(tmp_path, HPUGraphs("body"), **options)

    assert _values(graphs.losses) == pytest.approx(_values(plain.losses), rel=1e-5)
    for name, value in graphs.state_dict().items():
        torch.testing.assert_close(value.cpu(), plain.state_dict()[name].cpu())


def test_replay_does_not_overwrite_outputs(tmp_path: Path) -> None:
    """The model keeps its outputs, as `self.log` would. Without copies, those of one shape are the last one's."""
    plain = _fit(tmp_path)
    graphs = _fit(tmp_path, HPUGraphs("body"))
    shared = _fit(tmp_path, HPUGraphs("body", clone_outputs=False))

    for ours, expected in zip(graphs.outputs, plain.outputs, strict=True):
        torch.testing.assert_close(ours.cpu(), expected.cpu())
    assert len({tensor.data_ptr() for tensor in shared.outputs}) < len({tensor.data_ptr() for tensor in graphs.outputs})


def test_unused_parameters_need_an_option(tmp_path: Path) -> None:
    class Unused(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.body.register_parameter("unused", torch.nn.Parameter(torch.ones(1)))

    with pytest.raises(RuntimeError, match=r"unused|not have been used"):
        _fit(tmp_path, HPUGraphs("body"), model=Unused())
    model = Unused()
    _fit(tmp_path, HPUGraphs("body", allow_unused_input=True), model=model)

    assert model.body.unused.grad is None


def test_checkpoint_has_the_keys_of_the_model(tmp_path: Path) -> None:
    saved = tmp_path / "graphs.ckpt"

    class Save(_callbacks.Callback):  # type: ignore[misc] # chosen at run time
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(saved)

    model = _fit(tmp_path, HPUGraphs("body"), Save(), limit_val_batches=0)

    state = torch.load(saved, map_location="cpu", weights_only=True)["state_dict"]
    assert set(state) == set(Plain().state_dict())
    assert "forward" not in vars(model.body)


def test_forward_of_the_program_is_kept(tmp_path: Path) -> None:
    """A function that the program has put in place of `forward` is captured, and there again afterwards."""
    model = Plain()
    original: Any = model.body.forward
    calls = []

    def forward(value: torch.Tensor) -> Any:
        calls.append(value.shape)
        return original(value)

    vars(model.body)["forward"] = forward
    _fit(tmp_path, HPUGraphs("body"), model=model)

    assert model.body.forward is forward
    assert 0 < len(calls) < 20


@pytest.mark.filterwarnings("ignore:You are using a custom batch sampler")
@pytest.mark.parametrize(
    "run",
    [
        "validate",
        "test",
        pytest.param(
            "predict",
            marks=pytest.mark.skipif(
                frameworks.current().version < Version("2.3"),
                reason="Requires: a Lightning that keeps batch samplers in predict",
            ),
        ),
    ],
)
def test_evaluation_alone_runs_as_graphs(run: str, tmp_path: Path) -> None:
    class Model(Plain):
        test_step = Plain.validation_step

        def predict_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
            self.outputs.append(self.body(self._mean(batch)))
            return self.outputs[-1]

    plain, graphs = Model(), Model()
    for model, callbacks in ((plain, []), (graphs, [HPUGraphs("body")])):
        getattr(_trainer(tmp_path, *callbacks), run)(model, loader(shuffle=False))

    for ours, expected in zip(graphs.outputs, plain.outputs, strict=True):
        torch.testing.assert_close(ours.cpu(), expected.cpu())
    assert not {"forward", "clear_cache", "clear_inputs"} & set(vars(graphs.body))


def test_unknown_part_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"one of \['embedding', 'body'\], got 'head'"):
        _fit(tmp_path, HPUGraphs("head"))
