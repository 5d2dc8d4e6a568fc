"""Lazy or eager mode, the steps marked so far, and the modules made ready for inference."""

import os

marks = 0
initialized: list[tuple[object, bool]] = []


def is_lazy() -> bool:
    """Tell the mode."""
    return os.environ.get("PT_HPU_LAZY_MODE") == "1"


def mark_step(device_str: str = "", *, sync: bool = False) -> None:
    """Count a call."""
    global marks  # noqa: PLW0603 - the modules of the real bridge keep state like this, too.
    marks += 1


def hpu_set_env() -> None:
    """Switch to inference, by the name that bridges up to 1.19 know."""


def hpu_inference_initialize(model: object, mark_only_scales_as_const: bool = False) -> None:
    """Note a call."""
    initialized.append((model, mark_only_scales_as_const))
