"""Lazy or eager mode, and the steps marked so far."""

import os

marks = 0


def is_lazy() -> bool:
    """Tell the mode."""
    return os.environ.get("PT_HPU_LAZY_MODE") == "1"


def mark_step(device_str: str = "", *, sync: bool = False) -> None:
    """Count a call."""
    global marks  # noqa: PLW0603 - the modules of the real bridge keep state like this, too.
    marks += 1
