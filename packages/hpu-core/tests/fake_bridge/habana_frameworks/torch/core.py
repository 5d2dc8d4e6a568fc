"""Fake `core`: mode, counted calls of `mark_step`, and modules prepared for inference."""

import os

marks = 0
initialized: list[tuple[object, bool]] = []


def is_lazy() -> bool:
    """Return whether PT_HPU_LAZY_MODE is "1"."""
    return os.environ.get("PT_HPU_LAZY_MODE") == "1"


def mark_step(device_str: str = "", *, sync: bool = False) -> None:
    """Count a call."""
    global marks  # noqa: PLW0603 - the modules of the real bridge keep state like this, too.
    marks += 1


def hpu_set_env() -> None:
    """Do nothing; bridges up to 1.19 have this name."""


def hpu_inference_initialize(model: object, mark_only_scales_as_const: bool = False) -> None:
    """Record a call."""
    initialized.append((model, mark_only_scales_as_const))
