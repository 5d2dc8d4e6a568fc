"""Views: other metadata over the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alias": torch.ops.aten.alias,
    "as_strided": lambda x: x.as_strided((2, 2), (1, 4), 1),
    "chunk": lambda x: x.chunk(2)[1],
    "diagonal": lambda x: x.diagonal(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, 4, 6),
    "flatten": lambda x: x.flatten(),
    "index": lambda x: x[1:, ::2],
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "permute": lambda x: x.permute(1, 0),
    "reshape": lambda x: x.reshape(2, 12),
    "select": lambda x: x.select(1, 2),
    "split": lambda x: x.split(3)[1],
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(),
    "unbind": lambda x: x.unbind()[2],
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unsqueeze": lambda x: x.unsqueeze(2),
    "view": lambda x: x.view(24),
    "view dtype": lambda x: x.view(torch.int32),
    "view smaller dtype": lambda x: x.view(torch.uint8),
}


@pytest.fixture(params=_VIEWS)
def make(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes a view of a tensor of shape (4, 6)."""
    return _VIEWS[request.param]


def test_a_view_looks_as_on_the_cpu(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Shape, strides, offset, dtype and values are the CPU's."""
    host = make(torch.arange(24.0).view(4, 6))

    view = make(torch.arange(24.0, device="hpu").view(4, 6))

    assert view.device == torch.device("hpu:0")
    assert (view.shape, view.stride(), view.storage_offset()) == (host.shape, host.stride(), host.storage_offset())
    assert torch.equal(view.cpu(), host)


def test_a_view_shares_memory(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """There is one storage, and what is written to the base is seen through the view."""
    base = torch.zeros(4, 6, device="hpu")
    view = make(base)

    base.fill_(1)

    assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
    assert torch.equal(view.cpu(), make(torch.ones(4, 6)))


def test_a_view_shares_the_version(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Autograd sees an in-place change of a view as one of its base."""
    base = torch.zeros(4, 6, device="hpu")
    view = make(base)
    before = base._version

    view.zero_()

    assert base._version == view._version == before + 1
