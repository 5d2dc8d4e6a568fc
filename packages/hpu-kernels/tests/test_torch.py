"""Names of torch that are private."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hpu_kernels import _torch


def test_a_recomputation_is_seen() -> None:
    seen: list[bool] = []

    def function(inputs: torch.Tensor) -> torch.Tensor:
        seen.append(_torch.is_in_backward())
        return inputs.sin()

    checkpoint(function, torch.ones(2, requires_grad=True), use_reentrant=False).sum().backward()

    assert seen == [False, hasattr(torch._C, "_current_graph_task_id")]
    assert not _torch.is_in_backward()


@pytest.mark.skipif(not hasattr(torch, "compiler"), reason="torch 2.1")
def test_constants_are_computed_while_the_compiler_traces() -> None:
    seen: list[bool] = []

    @_torch.constant
    def dtype() -> torch.dtype:
        seen.append(True)
        return torch.float64

    compiled = torch.compile(lambda inputs: inputs.to(dtype()), backend="eager")

    assert [compiled(torch.ones(1)).dtype for _ in range(2)] == [torch.float64] * 2
    assert len(seen) == 1
    torch.compiler.reset()
