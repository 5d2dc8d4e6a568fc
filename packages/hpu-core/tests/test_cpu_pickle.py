"""What is in a file that `save` wrote; tensors of the device are in tests/simulated."""

import io
from collections import OrderedDict
from typing import Any

import pytest
import torch

from hpu_core import _cpu_pickle


def _round_trip(obj: Any) -> Any:
    buffer = io.BytesIO()
    _cpu_pickle.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_a_tensor_comes_back() -> None:
    """Values, type and shape survive."""
    tensor = torch.arange(6, dtype=torch.int16).reshape(2, 3)

    assert torch.equal(_round_trip(tensor), tensor)


def test_anything_that_pickles_is_saved() -> None:
    """What is no tensor passes through unchanged."""
    obj = {"epoch": 3, "names": ["a", ("b",)], "order": OrderedDict(x=1), "device": torch.device("hpu"), "set": {1}}

    assert _round_trip(obj) == obj


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_sparse_tensors_are_saved(layout: torch.layout) -> None:
    """Tensors without a storage of their own are saved as torch saves them."""
    dense = torch.eye(3)

    assert torch.equal(_round_trip(dense.to_sparse(layout=layout)).to_dense(), dense)


def test_tensors_without_a_storage_are_copied_whole() -> None:
    """What is no view of a storage is left to torch."""
    tensor = torch.eye(3).to_sparse()

    copy = _cpu_pickle._Copies().of(tensor)

    assert torch.equal(copy.to_dense(), tensor.to_dense())


def test_meta_tensors_are_saved() -> None:
    """A tensor without data stays one."""
    assert _round_trip(torch.empty(2, 3, device="meta")).shape == (2, 3)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_modules_parameters_are_saved() -> None:
    """A parameter whose shape is not known yet has nothing to copy."""
    state = torch.nn.LazyLinear(2).state_dict()

    assert type(_round_trip(state)["weight"]) is torch.nn.parameter.UninitializedParameter


def test_a_file_need_not_be_seekable() -> None:
    """The file is written from front to end."""

    class Stream(io.RawIOBase):
        content = b""

        def write(self, data: Any) -> int:
            self.content += bytes(data)
            return len(data)

    stream = Stream()
    _cpu_pickle.save({"x": torch.ones(2)}, stream)  # type: ignore[arg-type] # A raw stream is what is tested.

    assert torch.load(io.BytesIO(stream.content), weights_only=True)["x"].tolist() == [1, 1]


def test_what_torch_refuses_is_refused() -> None:
    """An object that cannot be pickled is an error, not a hole in the checkpoint."""
    with pytest.raises(AttributeError, match="lambda"):
        _round_trip({"hook": lambda: None})
