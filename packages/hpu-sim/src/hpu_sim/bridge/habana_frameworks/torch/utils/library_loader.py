"""Whether there are cards; the older way to ask."""

from habana_frameworks.torch import hpu
from hpu_sim.features import features


def is_habana_available() -> bool:
    """Return whether this machine has a card."""
    return bool(hpu.is_available())


def load_habana_module() -> None:
    """Load the bridge: needless since SynapseAI 1.5, kept by the bridge for scripts that still call it."""


if not features().after_1_19:

    def load_habana_profiler() -> None:
        """Load the profiler of the card: the simulated one has none, so there is nothing to load."""
