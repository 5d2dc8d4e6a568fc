"""Fake flags of the bridge."""

import contextlib
from collections.abc import Iterator

flags: dict[str, object] = {"PT_COMPILE_ONLY_MODE": False}


@contextlib.contextmanager
def env_setting(name: str, value: object) -> Iterator[None]:
    """Set a flag, or raise KeyError."""
    before = flags[name]
    flags[name] = value
    yield
    flags[name] = before
