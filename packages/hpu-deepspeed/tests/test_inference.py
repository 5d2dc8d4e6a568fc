"""DeepSpeed's inference engine in `trainer.test` and `trainer.predict`."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpu_core import frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy, _inference
from hpu_testing.modules import to_floats

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

_utilities = frameworks.current().pytorch("utilities.deepspeed")


def _predict(checkpoint: str | None = None, precision: str = "32-true", **options: Any) -> tuple[str, str, list[float]]:
    """Return the engine's class, the data type of the weights, and the scores of two batches."""
    strategy = HPUDeepSpeedStrategy(stage=1, **options)
    run = trainer(strategy, precision=precision)
    scores = run.predict(Classifier(), loader(run.global_rank, 2, 2), ckpt_path=checkpoint)
    engine = type(strategy.model).__name__
    return engine, str(scores[0].dtype), to_floats([score for batch in scores for score in batch.flatten()])


def _fit(folder: str) -> str:
    run = trainer(HPUDeepSpeedStrategy(stage=1), max_epochs=1)
    run.fit(Classifier(), loader(run.global_rank, 2, 2))
    run.save_checkpoint(f"{folder}/trained.ckpt")
    return f"{folder}/trained.ckpt"


def _test(**options: Any) -> float:
    run = trainer(HPUDeepSpeedStrategy(**options))
    (metrics,) = run.test(Classifier(), loader(run.global_rank, 2, 2), verbose=False)
    return float(metrics["loss"])


@pytest.mark.parametrize("as_config", [False, True])
def test_options_select_the_inference_engine(as_config: bool, on_ranks: OnRanks) -> None:
    options: dict[str, Any] = {"dtype": "bf16", "replace_with_kernel_inject": False, "tensor_parallel": {"tp_size": 1}}

    for engine, dtype, _ in on_ranks(_predict_with, {"config": options} if as_config else options):
        assert engine == "InferenceEngine"
        assert dtype == "torch.bfloat16"


def _predict_with(options: dict[str, Any]) -> tuple[str, str, list[float]]:
    # Lightning converts inputs to the data type of the precision.
    return _predict(precision="bf16-mixed", **options)


def _misspelt_option() -> None:
    options: dict[str, Any] = {"replace_methd": "auto"}
    with pytest.raises(TypeError, match=r"got unexpected arguments: replace_methd$"):
        HPUDeepSpeedStrategy(**options)


def test_misspelt_option_is_an_error(on_ranks: OnRanks) -> None:
    """DeepSpeed would ignore it."""
    on_ranks(_misspelt_option, count=1)


def _compare_engines() -> tuple[list[float], list[float], float, float]:
    return _predict()[2], _predict(enable_cuda_graph=True)[2], _test(), _test(enable_cuda_graph=True)


def test_scores_and_metrics_equal_those_of_the_training_engine(on_ranks: OnRanks) -> None:
    for scores, inference_scores, loss, inference_loss in on_ranks(_compare_engines):
        assert inference_scores == pytest.approx(scores)
        assert inference_loss == pytest.approx(loss)


def _predict_from_checkpoint(folder: str) -> tuple[list[float], list[float], list[float]]:
    checkpoint, file = _fit(folder), f"{folder}/one.ckpt"
    if dist.get_rank() == 0:
        _utilities.convert_zero_checkpoint_to_fp32_state_dict(checkpoint, file)
    dist.barrier()
    return _predict(checkpoint)[2], _predict(file, enable_cuda_graph=False)[2], _predict()[2]


def test_converted_checkpoint_is_loaded(on_ranks: OnRanks, tmp_path: Path) -> None:
    for scores, inference_scores, untrained in on_ranks(_predict_from_checkpoint, str(tmp_path)):
        assert inference_scores == pytest.approx(scores)
        assert inference_scores != pytest.approx(untrained)


_ZERO_3 = {"zero_optimization": {"stage": 3}}
# Configuration and arguments, the options that are taken, and what is left; of errors their text.
_TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any], Any, Any]] = {
    "both": ({"dtype": "bf16", "amp": {}}, {"tensor_parallel": {"tp_size": 2}}, {"dtype", "tensor_parallel"}, {"amp"}),
    "training's": ({"tensor_parallel": {"autotp_size": 2}}, {}, set(), {"tensor_parallel"}),
    "no dtype": ({}, {"dtype": "half precision"}, None, "dtype"),
    "no dict": ({}, {"tensor_parallel": 2}, None, "tensor_parallel"),
    "stage 3": (_ZERO_3, {"dtype": torch.float}, None, "`dtype` needs `stage` 0, 1 or 2, because"),
}


def _take(case: str) -> tuple[Any, Any]:
    config, arguments, *_ = copy.deepcopy(_TAKEN[case])
    try:
        return set(_inference.take_options(config, arguments)), set(config)
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("case", _TAKEN)
def test_options_of_the_engine_are_taken_and_checked(case: str, on_ranks: OnRanks) -> None:
    [(taken, left)] = on_ranks(_take, case, count=1)

    assert taken == _TAKEN[case][2]
    assert left == _TAKEN[case][3] or _TAKEN[case][3] in left
