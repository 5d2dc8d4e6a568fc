"""Errors for names of Gaudi on machines where `autoload` finds neither a device nor the simulator.

Lightning rejects the names there, because they are not registered. Its error lists CPU and CUDA only.
"""

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

HINT: Final = "`hpu-info` lists where hpu-core searched for Gaudi cards; `hpu-sim run` simulates cards."
"""Last sentence of errors on machines without a device."""


def connector(original: Any, _: "FrameworkName") -> Any:
    """Return a subclass of a connector of Lightning whose errors for names of Gaudi have `HINT`.

    Args:
        original: Lightning's `_AcceleratorConnector` or `_Connector`.
    """
    if not hasattr(original, "_check_config_and_set_final_flags"):
        return original
    original_check = original._check_config_and_set_final_flags  # noqa: SLF001 - see `_connectors.REQUIRED`.

    @functools.wraps(original_check)
    def check(self: Any, **flags: Any) -> None:
        try:
            original_check(self, **flags)
        except ValueError as error:
            if len(error.args) == 1 and names_hpu(flags):
                error.args = (f"{error} No Gaudi card was found: {HINT}",)
            raise

    # With the original's name and module, by which a Trainer is pickled.
    namespace = {
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "_check_config_and_set_final_flags": check,
    }
    return type(original.__name__, (original,), namespace)


def names_hpu(flags: dict[str, Any]) -> bool:
    """Return whether the accelerator is "hpu", or the name of the strategy starts with "hpu_".

    Args:
        flags: Arguments of the Trainer or of Fabric.
    """
    return flags.get("accelerator") == "hpu" or str(flags.get("strategy")).lower().startswith("hpu_")
