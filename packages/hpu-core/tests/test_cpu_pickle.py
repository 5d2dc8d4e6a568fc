"""Tests of the content of files that `save` writes; tests/simulated has those with device tensors."""

import io
from functools import wraps
from typing import Any

import pytest
import torch

from hpu_core import _cpu_pickle


def _round_trip(obj: Any) -> Any:
    buffer = io.BytesIO()
    _cpu_pickle.save(obj, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_wrapper_of_torch_save_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may count, encrypt or time what it saves."""
    saved: list[object] = []
    torch_save = torch.save

    def save(obj: object, *args: Any, **kwargs: Any) -> None:
        saved.append(obj)
        torch_save(obj, *args, **kwargs)

    monkeypatch.setattr(torch, "save", save)

    assert _round_trip({"epoch": 3}) == {"epoch": 3}
    assert saved == [{"epoch": 3}]


def test_replacement_by_the_bridge_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies tensors separately, so that they no longer share a storage."""
    bridge: dict[str, Any] = {"__name__": "habana_frameworks.torch.core", "torch_save": torch.save, "wraps": wraps}
    exec("@wraps(torch_save)\ndef save(*args, **kwargs): raise AssertionError", bridge)  # noqa: S102 - fake of the bridge
    monkeypatch.setattr(torch, "save", bridge["save"])

    assert _round_trip({"epoch": 3}) == {"epoch": 3}


def test_tensors_without_storage_are_copied_by_torch() -> None:
    tensor = torch.eye(3).to_sparse()

    copy = _cpu_pickle._Pickler(io.BytesIO()).cpu_copy(tensor)

    assert torch.equal(copy.to_dense(), tensor.to_dense())


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_uninitialized_parameters() -> None:
    state = torch.nn.LazyLinear(2).state_dict()

    assert type(_round_trip(state)["weight"]) is torch.nn.parameter.UninitializedParameter


def test_file_need_not_be_seekable() -> None:
    class Stream(io.RawIOBase):
        content = b""

        def write(self, data: Any) -> int:
            self.content += bytes(data)
            return len(data)

    stream = Stream()
    _cpu_pickle.save({"x": torch.ones(2)}, stream)  # type: ignore[arg-type] # A raw stream is what is tested.

    assert torch.load(io.BytesIO(stream.content), weights_only=True)["x"].tolist() == [1, 1]
