"""Which mode the bridge runs in."""

from hpu_sim.runtime import active_config


def is_lazy() -> bool:
    """Return whether operators pile up in graphs. Decided when the bridge is first imported."""
    return active_config().lazy
