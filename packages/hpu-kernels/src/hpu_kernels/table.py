"""Table of what the kernels compute, and of what is left to torch."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Row", "render"]


@dataclass(frozen=True)
class Row:
    """Line of the table.

    Attributes:
        kind: Function of torch, or class of a module or an optimizer.
        kernel: The bridge's kernel; None if it is left to torch.
        number: Number of calls until now, of modules or of optimizers.
        reason: Why it is left.
    """

    kind: str
    kernel: str | None
    number: int
    reason: str = ""


def render(rows: Iterable[Row], *, simulated: bool) -> str:
    """Return the table as text."""
    lines = [f"{each.number:6}  {each.kind}: {each.kernel or f'left to torch, {each.reason}'}" for each in rows]
    title = "hpu-kernels" + (" (simulated)" if simulated else "")
    return "\n".join((f"{title}:", *(lines or ["  nothing to replace"])))
