"""Value of the archived package that programs import."""

import hpu_core


def __getattr__(name: str) -> bool:
    # Looked up when it is asked for: it looks for cards, and an import must not.
    if name == "AVAILABLE":
        return hpu_core.is_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
