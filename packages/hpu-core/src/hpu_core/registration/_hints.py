"""Errors of Lightning's connectors for names of Gaudi on a machine without a device.

Programs for the CPU import this module, so it must not import discovery or torch.
"""

from typing import Any, ClassVar, Final

from hpu_core.registration import _suggestions

HINT: Final = "`hpu-info` lists where hpu-core searched for Gaudi cards; `hpu-sim run` simulates cards."
"""Last sentence of errors on machines without a device."""

# Lightning's connector, as for HPUConnectorMixin.
_Connector: Any = object


class HintMixin(_Connector):  # type: ignore[misc] # see `_Connector`
    """Mixin for a connector: its errors for names of Gaudi end with `HINT`."""

    REQUIRED: ClassVar[tuple[str, ...]] = ()

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        try:
            with _suggestions.suggest_flags(flags):
                super()._check_config_and_set_final_flags(**flags)
        except ValueError as error:
            if len(error.args) == 1 and names_hpu(flags):
                error.args = (f"{error} No Gaudi card was found: {HINT}",)
            raise


def names_hpu(flags: dict[str, Any]) -> bool:
    """Return whether the accelerator is "hpu", or the name of the strategy starts with "hpu_"."""
    return flags.get("accelerator") == "hpu" or str(flags.get("strategy")).lower().startswith("hpu_")


REPLACEMENTS: Final = dict.fromkeys(("_AcceleratorConnector", "_Connector"), HintMixin)
