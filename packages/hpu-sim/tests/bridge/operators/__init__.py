"""Tests of the operators of `torch.ops.hpu`, by module of `habana_frameworks.torch._operators`."""
