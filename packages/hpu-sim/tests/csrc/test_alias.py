"""CPU and hpu tensors over the same memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.needs_torch("2.3", "storages of this device that Python resizes")


@pytest.mark.usefixtures("eager_mode")
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.tolist(),
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.clone(),
        lambda x: x.fill_(1),
        lambda x: x.copy_(torch.ones(4)),
        lambda x: torch.ones(4, device="hpu").copy_(x),
        lambda x: torch.add(torch.ones(4, device="hpu"), 1, out=x),
        lambda x: torch._foreach_add_([x], 1),
        lambda x: x.unsqueeze(0) @ x.unsqueeze(1),
        str,
    ],
)
@pytest.mark.parametrize("size", [0, 20])
def test_a_tensor_beyond_its_storage_is_an_error(use: Callable[[torch.Tensor], object], size: int) -> None:
    """The memory is not read. Once the storage has its size again, the tensor can be used."""
    whole = torch.ones(8, device="hpu")
    view = whole[2:6]
    whole.untyped_storage().resize_(size)

    with pytest.raises(
        RuntimeError, match=rf"must lie within their storage.* of a storage of {size} bytes|out of bounds"
    ):
        use(view)

    whole.untyped_storage().resize_(32)
    assert whole.fill_(3).sum().item() == 24
    assert view.tolist() == [3, 3, 3, 3]


@pytest.mark.usefixtures("eager_mode")
def test_a_view_of_a_freed_storage_only_sets_metadata() -> None:
    """FSDP makes some before it fills the storage again."""
    x = torch.ones(8, device="hpu")
    x.untyped_storage().resize_(0)

    rows = x.detach().view(2, 4)
    x.untyped_storage().resize_(32)
    x.copy_(torch.arange(8.0))

    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
