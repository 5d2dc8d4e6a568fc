"""Lightning's actions and Trainer."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from hpu_profiler._lightning import ActionInfo, classify_action, expected_steps


@pytest.mark.parametrize(
    ("action_name", "stage", "info"),
    [
        ("[_TrainingEpochLoop].train_dataloader_next", "fit", ActionInfo("training")),
        ("run_training_batch", "fit", ActionInfo("training", "training")),
        ("[Strategy]SingleHPUStrategy.training_step", "fit", ActionInfo()),
        ("[_EvaluationLoop].val_next", "fit", ActionInfo("validation")),
        ("[Strategy]SingleHPUStrategy.validation_step", "fit", ActionInfo("validation", "validation")),
        ("[Strategy]SingleHPUStrategy.test_step", "test", ActionInfo("test", "test")),
        ("[_PredictionLoop].predict_next", "predict", ActionInfo("predict")),
        ("[Callback]ModelSummary.on_exception", "fit", ActionInfo(is_failure=True)),
        ("[LightningModule]Model.prepare_data", None, ActionInfo()),
        ("augment", None, ActionInfo("")),
        ("training_step", None, ActionInfo("", "")),
    ],
)
def test_action_is_related_to_steps(action_name: str, stage: str | None, info: ActionInfo) -> None:
    assert classify_action(action_name, stage) == info


@pytest.mark.parametrize(
    ("kind", "options", "steps"),
    [
        ("training", {"max_epochs": 2, "num_training_batches": 3}, 6),
        ("training", {"max_epochs": -1, "num_training_batches": 3}, math.inf),
        ("training", {"max_epochs": 2, "num_training_batches": 3, "max_steps": 4}, 4),
        ("validation", {"max_epochs": 1, "num_val_batches": [2, 3]}, 5),
        ("validation", {"max_epochs": 2, "num_val_batches": [2, 3]}, math.inf),
        ("validation", {"max_epochs": 2, "num_val_batches": [2, 3], "stage": "validate"}, 5),
        ("test", {"num_test_batches": 4}, 4),
        ("predict", {"num_predict_batches": [math.inf]}, math.inf),
    ],
)
def test_expected_steps_follow_from_the_trainer(kind: str, options: dict[str, Any], steps: float) -> None:
    batches = {"num_training_batches": 0, "num_val_batches": 0, "num_test_batches": 0, "num_predict_batches": 0}
    defaults = {"max_epochs": 1, "max_steps": -1, **batches}
    state = SimpleNamespace(fn=options.pop("stage", "fit"))

    assert expected_steps(SimpleNamespace(**{**defaults, **options}, state=state), kind) == steps


def test_expected_steps_are_unknown_without_a_trainer() -> None:
    assert expected_steps(None, "training") == math.inf
