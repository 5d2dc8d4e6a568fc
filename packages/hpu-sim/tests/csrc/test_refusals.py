"""csrc/cpu_fallback.cpp and storage_ops.cpp: what belongs to another device, or to none, is refused."""

from __future__ import annotations

import pytest
import torch


def test_a_sparse_gradient_is_refused() -> None:
    """Which an embedding makes of dense tensors."""
    weight = torch.ones(5, 3, device="hpu", requires_grad=True)
    rows = torch.nn.functional.embedding(torch.tensor([1, 2], device="hpu"), weight, sparse=True)

    with pytest.raises(RuntimeError, match="hpu tensors must be dense"):
        rows.sum().backward()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor.*are deprecated:UserWarning")
def test_a_quantized_result_is_refused() -> None:
    """The card has no such dtypes."""
    with pytest.raises(RuntimeError, match="hpu tensors cannot be quantized"):
        torch.quantize_per_tensor(torch.ones(3, device="hpu"), 0.1, 0, torch.quint8)


def test_a_host_tensor_is_not_indexed_by_the_device() -> None:
    """Indices of the device select from tensors of the device only."""
    indices = torch.tensor([0], device="hpu")

    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3)[indices]


def test_values_of_the_host_are_not_put_into_the_device() -> None:
    """Indices may come from the host, values may not."""
    target = torch.zeros(4, device="hpu")

    target[torch.tensor([0, 1])] = torch.tensor([1.0, 2.0], device="hpu")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        target[torch.tensor([2, 3])] = torch.tensor([3.0, 4.0])

    assert target.tolist() == [1.0, 2.0, 0.0, 0.0]


@pytest.mark.needs_torch("2.9", "generators in Python for this device")
@pytest.mark.parametrize(("device", "generator"), [("hpu", "cpu"), ("cpu", "hpu")])
def test_a_generator_draws_for_its_own_device(device: str, generator: str) -> None:
    """A generator of the other device is refused in torch's words."""
    expected = f"Expected a '{device}' device type for generator but found '{generator}'"

    with pytest.raises(RuntimeError, match=expected):
        torch.rand(2, device=device, generator=torch.Generator(generator))


@pytest.mark.needs_torch("2.2", "memory that it fills")
def test_new_memory_is_filled_where_algorithms_have_to_be_deterministic() -> None:
    """Memory that nobody has written reads the same every time."""
    torch.use_deterministic_algorithms(True)
    try:
        empty = torch.empty(3, device="hpu")
    finally:
        torch.use_deterministic_algorithms(False)

    assert empty.isnan().all().item()
