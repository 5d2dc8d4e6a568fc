"""HPUCompile on one simulated card, in eager mode."""

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from torch import nn

from hpu_bucketing import (
    BucketBatchSampler,
    BucketCollate,
    BucketDataLoader,
    BucketPlan,
    HPUWarmup,
    RecompilationMonitor,
    RecompilationWarning,
)
from hpu_compile import HPUCompile, RecompileLimitWarning
from hpu_core import frameworks

from ..modules import (  # noqa: TID252 - pytest gives tests no absolute name
    BATCH,
    CLASSES,
    WIDTH,
    Block,
    Classifier,
    Gate,
    Remembering,
    Talking,
    are_equal,
    fit,
    make_loader,
    make_trainer,
)

pytestmark = [pytest.mark.usefixtures("compiler"), pytest.mark.filterwarnings("ignore::FutureWarning")]

_lightning = frameworks.current()


def _graphs(callback: HPUCompile) -> list[dict[str, int]]:
    assert callback.report is not None
    return [dict(region.graphs) for region in callback.report.regions]


def test_training_equals_the_uncompiled_one() -> None:
    plain, compiled = fit(), fit(HPUCompile())

    assert are_equal(plain, compiled)
    assert torch.equal(torch.stack(plain.losses), torch.stack(compiled.losses))


def test_graphs_are_those_of_classes_and_modes() -> None:
    """Two classes with eight blocks, in training and in evaluation."""
    callback = HPUCompile()
    make_trainer(callback, max_epochs=2).fit(Classifier(Block, Gate), make_loader(), make_loader(2))

    assert _graphs(callback) == [{"training": 1, "evaluation": 1}] * 2


def test_first_step_is_eager() -> None:
    """What it creates would make its graphs useless."""
    lazy, direct = HPUCompile(), HPUCompile(eager_steps=0)
    for callback in (lazy, direct):
        fit(callback, model=Classifier(Remembering))

    assert _graphs(lazy) == [{"training": 1}]
    assert _graphs(direct) == [{"training": 2}]


@pytest.mark.parametrize("regions", [["head", "Block"], [nn.Linear]])
def test_other_regions_train_as_well(regions: Any) -> None:
    callback = HPUCompile(regions)

    assert are_equal(fit(callback), fit())
    assert callback.report is not None
    assert all(region.graphs["training"] for region in callback.report.regions)


@pytest.mark.parametrize("loop", ["validate", "test", "predict"])
def test_evaluation_outside_of_a_training_is_compiled(loop: str) -> None:
    callback, model = HPUCompile(), Classifier()
    getattr(make_trainer(callback), loop)(model, make_loader(2))

    assert _graphs(callback) == [{"evaluation": 1}]
    assert model.blocks[0]._compiled_call_impl is None


def test_model_is_as_before_afterwards() -> None:
    model = fit(HPUCompile())

    assert model.blocks[0]._compiled_call_impl is None
    assert torch._dynamo.config.cache_size_limit < 256


class _Configured(Classifier):
    """Classifier that makes its blocks in `configure_model`, anew for each training."""

    def configure_model(self) -> None:
        self.blocks = nn.ModuleList(Block() for _ in range(2))


def test_blocks_of_configure_model_are_compiled_again() -> None:
    callback, model = HPUCompile(), _Configured()
    for _ in range(2):
        fit(callback, model=model)

        assert _graphs(callback) == [{"training": 1}]


def test_checkpoints_are_exchanged(tmp_path: Path) -> None:
    """A compiled training resumes from an uncompiled one, and the reverse, as if there had been no interruption."""
    whole = fit(max_epochs=2)
    for name, (first, second) in {"a": ([], [HPUCompile()]), "b": ([HPUCompile()], [])}.items():
        trainer = make_trainer(*first)
        trainer.fit(Classifier(), make_loader())
        trainer.save_checkpoint(tmp_path / name)
        resumed = Classifier()
        options = {"weights_only": False} if _lightning.version >= Version("2.6.dev0") else {}
        make_trainer(*second, max_epochs=2).fit(resumed, make_loader(), ckpt_path=tmp_path / name, **options)

        assert are_equal(resumed, whole)


def test_names_and_copies_are_those_of_the_model() -> None:
    """A copy, as for an average of the weights, and a pickled one are not compiled."""
    found: dict[str, Any] = {}

    class Look(_lightning.pytorch("callbacks").Callback):  # type: ignore[misc] # depends on the framework
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            found["names"] = list(pl_module.state_dict())
            data = pickle.dumps(pl_module.blocks)
            found["copies"] = [copy.deepcopy(pl_module.blocks), pickle.loads(data)]  # noqa: S301 - its own data

    fit(HPUCompile(), Look())

    assert found["names"] == list(Classifier().state_dict())
    assert [each[0]._compiled_call_impl for each in found["copies"]] == [None, None]


def test_graph_breaks_have_a_line_and_a_reason() -> None:
    callback = HPUCompile()
    fit(callback, model=Classifier(Talking))

    assert callback.report is not None
    (found,) = callback.report.regions[0].breaks
    assert Path(found.file).name == "modules.py"
    assert "graph_break" in Path(found.file).read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert found.reason.startswith("User-inserted graph break")
    assert _graphs(callback) == [{"training": 2}]


def test_a_graph_break_can_be_an_error() -> None:
    with pytest.raises(Exception, match=r"graph.break"):
        fit(HPUCompile(fullgraph=True), model=Classifier(Talking))


def test_a_last_batch_of_another_size_is_within_the_limit() -> None:
    callback = HPUCompile()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecompileLimitWarning)
        fit(callback, loader=make_loader(more=2))

    assert callback.report is not None
    (again,) = callback.report.regions[0].recompilations
    assert (again.module, again.mode, again.step) == ("blocks.0", "training", 4)
    assert "expected 4, actual 2" in again.guard


class _Shapes(torch.utils.data.Dataset[Any]):
    """Samples of rows, of several lengths."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        length = self.lengths[index]
        return torch.full((length, WIDTH), index / 10), torch.full((length,), index % CLASSES)


def _variable(lengths: list[int]) -> Any:
    return torch.utils.data.DataLoader(_Shapes(lengths), batch_size=1)


def test_a_limit_names_module_guard_and_line() -> None:
    with pytest.warns(RecompileLimitWarning) as warned:
        model = fit(HPUCompile(eager_steps=0), loader=_variable([3, 4, 5, 6]))

    (text,) = [str(each.message) for each in warned if issubclass(each.category, RecompileLimitWarning)]
    assert text.startswith("`blocks.0` has more than 1 + 1 graphs of training: tensor 'rows' size mismatch at index 1")
    assert "modules.py:" in text
    assert "run without the compiler" in text
    assert are_equal(model, fit(loader=_variable([3, 4, 5, 6])))


def test_shapes_are_allowed_for() -> None:
    callback = HPUCompile(shapes=3, eager_steps=0)
    fit(callback, loader=_variable([3, 4, 5, 6]))

    assert _graphs(callback) == [{"training": 4}]


def _bucketed() -> Any:
    lengths = [3, 4, 7, 8, 11, 12, 15, 16] * BATCH
    plan = BucketPlan.from_boundaries([4, 8, 12, 16])
    return BucketDataLoader(
        _Shapes(lengths),
        BucketBatchSampler(lengths, plan, batch_size=BATCH, drop_last=True),
        collate_fn=BucketCollate(plan, dims={0: {0: 0}, 1: {0: 0}}),
    )


@pytest.mark.parametrize("warmup", [False, True])
def test_buckets_are_allowed_for(*, warmup: bool) -> None:
    """As many graphs as buckets, with and without hpu-bucketing's warm-up."""
    callback = HPUCompile()
    callbacks = [callback, HPUWarmup(progress_bar=False)] if warmup else [callback]
    fit(*callbacks, loader=_bucketed(), max_epochs=2)

    assert _graphs(callback) == [{"training": 4}]


def test_monitor_of_hpu_bucketing_has_module_guard_and_line() -> None:
    monitor = RecompilationMonitor()
    with pytest.warns(RecompilationWarning):
        fit(monitor, HPUCompile(), loader=make_loader(4, more=2))

    (text,) = monitor.violations
    assert "batch 4 of epoch 0" in text
    assert "torch.compile: `blocks.0`, training, step 4: tensor 'rows' size mismatch" in text


def test_nothing_happens_on_a_cpu() -> None:
    callback = HPUCompile()
    fit(callback, accelerator="cpu", strategy="auto")

    assert callback.report is None
