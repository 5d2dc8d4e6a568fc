"""Plans of files and sizes."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from hpu_export._lazy_tensor import LazyTensor
from hpu_export.writer import parse_size, plan_files, write_file


def _weights(*sizes: int) -> dict[str, LazyTensor]:
    return {str(i): LazyTensor.from_tensor(torch.ones(size, dtype=torch.uint8)) for i, size in enumerate(sizes)}


# torch 2.0 has none.
_FLOAT8 = getattr(torch, "float8_e4m3fn", torch.float16)


@pytest.mark.parametrize(("text", "size"), [("5GB", 5 * 10**9), ("2 mib", 2**21), ("100", 100)])
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_files_are_as_large_as_allowed() -> None:
    files = plan_files(_weights(4, 4, 4, 20, 1), 8)
    assert list(files.values()) == [["0", "1"], ["2"], ["3"], ["4"]]
    assert next(iter(files)) == "model-00001-of-00004.safetensors"


def test_a_small_model_is_one_file() -> None:
    assert plan_files(_weights(1, 2), 8) == {"model.safetensors": ["0", "1"]}


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.int64, torch.float64, torch.bfloat16, _FLOAT8, torch.complex64]
)
def test_dtypes_and_strides_are_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    path = tmp_path / "out.safetensors"
    written: list[int] = []
    weights = {"b": LazyTensor.from_tensor(tensor.t()), "a": LazyTensor.from_tensor(tensor[0, 1])}
    write_file(path, weights, {"format": "pt"}, written.append)

    with safe_open(path, framework="pt") as content:
        assert torch.equal(content.get_tensor("b").view(torch.uint8), tensor.t().contiguous().view(torch.uint8))
        assert content.get_tensor("a").shape == ()
    assert sum(written) == (12 + 1) * tensor.element_size()


def test_a_tensor_that_yields_too_little_is_refused(tmp_path: Path) -> None:
    short = LazyTensor((4,), torch.float32, lambda: [torch.ones(3)])
    with pytest.raises(ValueError, match="'a' must have 16 bytes, got 12"):
        write_file(tmp_path / "x", {"a": short}, {}, lambda _: None)
