"""Legacy functions that load the bridge and check for devices."""

from habana_frameworks.torch import hpu
from hpu_sim.device.features import features


def is_habana_available() -> bool:
    """Return whether the machine has a device."""
    return bool(hpu.is_available())


def load_habana_module() -> None:
    """Do nothing. The import loads the bridge since SynapseAI 1.5; older scripts still call this."""


if not features().after_1_19:

    def load_habana_profiler() -> None:
        """Do nothing. The simulated device needs no library for profiling."""
