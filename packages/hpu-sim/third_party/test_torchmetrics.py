"""torchmetrics computes on the device what it computes on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torchmetrics import MaxMetric, MeanMetric, MetricCollection, SumMetric
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassCalibrationError,
    MulticlassCohenKappa,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MulticlassPrecision,
    MulticlassPrecisionRecallCurve,
    MulticlassRecall,
)
from torchmetrics.image import StructuralSimilarityIndexMeasure
from torchmetrics.regression import MeanSquaredError, PearsonCorrCoef, R2Score, SpearmanCorrCoef
from torchmetrics.retrieval import RetrievalMAP

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.hpu

_CLASSES = 5


def _collection() -> MetricCollection:
    kinds = (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassAveragePrecision,
        MulticlassCalibrationError,
        MulticlassCohenKappa,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
        MulticlassJaccardIndex,
        MulticlassPrecision,
        MulticlassRecall,
    )
    return MetricCollection([kind(num_classes=_CLASSES) for kind in kinds])


def _classes() -> tuple[torch.Tensor, ...]:
    return torch.randn(16, _CLASSES).softmax(-1), torch.randint(0, _CLASSES, (16,))


def _numbers() -> tuple[torch.Tensor, ...]:
    return torch.rand(16), torch.rand(16)


def _rankings() -> tuple[torch.Tensor, ...]:
    return torch.rand(8), torch.randint(0, 2, (8,)), torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])


def _images() -> tuple[torch.Tensor, ...]:
    return torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)


@pytest.mark.filterwarnings("ignore:Metric `.*` will save all:UserWarning")
@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (_collection, _classes),
        (lambda: MulticlassPrecisionRecallCurve(num_classes=_CLASSES), _classes),
        (lambda: MulticlassAUROC(num_classes=_CLASSES, thresholds=20), _classes),
        (MeanMetric, _numbers),
        (SumMetric, lambda: (torch.rand(5),)),
        (MaxMetric, lambda: (torch.rand(5),)),
        (lambda: MetricCollection([MeanSquaredError(), R2Score(), PearsonCorrCoef(), SpearmanCorrCoef()]), _numbers),
        (lambda: StructuralSimilarityIndexMeasure(data_range=1.0), _images),
        (RetrievalMAP, _rankings),
    ],
    ids=["collection", "curve", "thresholds", "mean", "sum", "max", "regression", "image", "retrieval"],
)
def test_a_metric_equals_that_of_the_cpu(
    make: Callable[[], Any], batch: Callable[[], tuple[torch.Tensor, ...]]
) -> None:
    """It accumulates batches, and its state moves with `to`."""
    torch.manual_seed(0)
    on_cpu, on_device = make(), make().to("hpu")
    for _ in range(2):
        tensors = batch()
        on_cpu.update(*tensors)
        on_device.update(*(tensor.to("hpu") for tensor in tensors))

    torch.testing.assert_close(on_device.compute(), on_cpu.compute(), check_device=False)
