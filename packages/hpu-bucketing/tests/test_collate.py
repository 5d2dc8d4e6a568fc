"""Tests of the collate function."""

from collections import UserDict
from typing import Any

import pytest
import torch

from hpu_bucketing import BucketCollate, BucketPlan

_PLAN = BucketPlan.from_boundaries([4, 8])


class BatchEncoding(UserDict[str, Any]):
    """A mapping such as a tokenizer returns."""


def test_dicts_are_padded_with_a_mask() -> None:
    batch = BucketCollate(_PLAN)(
        [
            {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3]), "score": 0.5},
            {"input_ids": torch.tensor([4]), "labels": torch.tensor([4]), "score": 1.5},
        ]
    )

    assert batch["input_ids"].tolist() == [[1, 2, 3, 0], [4, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3, -100], [4, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert batch["score"].tolist() == [0.5, 1.5]


def test_output_of_a_tokenizer_keeps_its_type_and_mask() -> None:
    """A tokenizer returns lists; its own mask may hide tokens."""
    sample = BatchEncoding({"input_ids": [7, 8], "attention_mask": [1, 0]})

    batch = BucketCollate(_PLAN)([sample, sample])

    assert isinstance(batch, BatchEncoding)
    assert batch["attention_mask"].tolist() == [[1, 0, 0, 0]] * 2


def test_mask_is_the_last_element_of_a_tuple() -> None:
    tokens, label, mask = BucketCollate(_PLAN)([(torch.ones(5), 1), (torch.ones(2), 0)])

    assert (tokens.shape, label.tolist()) == ((2, 8), [1, 0])
    assert mask.sum(dim=1).tolist() == [5, 2]


def test_tensors_become_a_tuple_with_the_mask() -> None:
    tokens, mask = BucketCollate(_PLAN)([torch.ones(2, 3), torch.ones(1, 3)])

    assert tokens.shape == (2, 4, 3)
    assert mask.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


def test_no_mask_is_added_without_a_name() -> None:
    assert set(BucketCollate(_PLAN, attention_mask=None)([{"input_ids": [1]}])) == {"input_ids"}


def test_field_of_another_length_is_not_padded() -> None:
    """Only fields that have the length of the sample in all samples are."""
    samples = [{"input_ids": [1, 2, 3], "box": [1, 2, 3]}, {"input_ids": [1, 2], "box": [1, 2, 3]}]

    assert BucketCollate(_PLAN)(samples)["box"].shape == (2, 3)


def test_field_of_a_fixed_size_stays_as_it_is_where_the_length_is_the_same() -> None:
    """An earlier sample has shown that it does not follow the length."""
    collate = BucketCollate(_PLAN)
    collate([{"input_ids": [1, 2], "box": [1.0, 2.0, 3.0], "labels": [1, 2]}])

    batch = collate([{"input_ids": [1, 2, 3], "box": [1.0, 2.0, 3.0], "labels": [1, 2, 3]}])
    assert (batch["box"].shape, batch["labels"].shape) == ((1, 3), (1, 4))


def test_field_that_was_taken_for_a_sequence_is_an_error() -> None:
    """Its first batch could not tell; silently, batches would have different sizes of the field."""
    collate = BucketCollate(_PLAN)
    collate([{"input_ids": [1, 2, 3], "box": [1.0, 2.0, 3.0]}])

    with pytest.raises(ValueError, match=r"'box' has size 3 in a sample of length 2.*`dims=\{'input_ids': \{0: 0\}\}`"):
        collate([{"input_ids": [1, 2], "box": [1.0, 2.0, 3.0]}])


def test_named_dimensions_are_padded() -> None:
    plan = BucketPlan.from_boundaries([4, 8], [16, 32])
    collate = BucketCollate(plan, dims={"tokens": {0: 0}, "image": {1: 1, 2: 1}}, pad_values={"tokens": 9})

    batch = collate(
        [
            {"tokens": [1], "image": torch.ones(3, 10, 20)},
            {"tokens": [1, 2], "image": torch.ones(3, 5, 5)},
        ]
    )

    assert batch["image"].shape == (2, 3, 32, 32)
    assert batch["image"].sum(dim=(1, 2, 3)).tolist() == [600.0, 75.0]
    assert batch["tokens"].tolist() == [[1, 9, 9, 9], [1, 2, 9, 9]]


def test_long_sample_is_an_error_or_truncated() -> None:
    samples = [{"input_ids": list(range(9))}]

    with pytest.raises(ValueError, match="length 9 does not fit into the largest bucket, 8"):
        BucketCollate(_PLAN)(samples)
    batch = BucketCollate(_PLAN, truncate=True)(samples)
    assert batch["input_ids"].tolist() == [list(range(8))]
    assert batch["attention_mask"].tolist() == [[1] * 8]


def test_plan_of_several_dimensions_needs_their_names() -> None:
    with pytest.raises(ValueError, match="`dims` must be given for a plan of 2 dimensions"):
        BucketCollate(BucketPlan.from_boundaries([4], [8]))


@pytest.mark.parametrize(("sample", "error"), [({"label": 1}, ValueError), ("text", TypeError)])
def test_sample_without_a_sequence_is_an_error(sample: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a sample must"):
        BucketCollate(_PLAN)([sample])
