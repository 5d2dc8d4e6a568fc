"""Source lines of hooks."""

import torch

from hpu_profiler._source_lines import hook_lines


class _Module(torch.nn.Module):
    def training_step(self) -> None:
        """Do nothing."""

    def helper(self) -> None:
        """Do nothing."""


def test_hooks_of_the_user_have_their_line() -> None:
    """Hooks that the user inherits from a library, and functions that are not hooks, are left out."""
    lines = hook_lines({"[LightningModule]Net": _Module()})

    line = _Module.training_step.__code__.co_firstlineno
    (name,) = lines
    assert name == "[LightningModule]Net.training_step"
    assert lines[name].endswith(f"test_source_lines.py:{line} training_step")
