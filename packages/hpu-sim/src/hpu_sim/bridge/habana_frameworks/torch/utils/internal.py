"""Mode of the bridge."""

from hpu_sim.device.runtime import active_config


def is_lazy() -> bool:
    """Return whether the bridge is in lazy mode, which is fixed when it is first imported."""
    return active_config().lazy
