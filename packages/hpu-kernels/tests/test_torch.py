"""Names of torch that are private."""

import pytest
import torch

from hpu_kernels import _torch


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
