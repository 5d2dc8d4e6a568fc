"""Hints at the end of Lightning's errors: for misspelt arguments, and for names of Gaudi without a device.

Programs for the CPU import this module, so it must not import discovery or torch.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from hpu_core import plugins

HINT: Final = "`hpu-info` lists where hpu-core searched for Gaudi cards; `hpu-sim run` simulates cards."
"""Last sentence of errors on machines without a device."""

# What users write instead of "hpu".
_ACCELERATORS: Final = ("gaudi", "habana", "hpus")
_PRECISIONS: Final = ("32-true", "16-true", "16-mixed", "bf16-true", "bf16-mixed", "64-true")

# Lightning's connector, as for HPUConnectorMixin.
_Connector: Any = object


class HintMixin(_Connector):  # type: ignore[misc] # see `_Connector`
    """Mixin for a connector: its errors for names of Gaudi end with `HINT`."""

    REQUIRED: ClassVar[tuple[str, ...]] = ()

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        try:
            with suggest_flags(flags):
                super()._check_config_and_set_final_flags(**flags)
        except ValueError as error:
            if len(error.args) == 1 and names_hpu(flags):
                error.args = (f"{error} No Gaudi card was found: {HINT}",)
            raise


def names_hpu(flags: dict[str, Any]) -> bool:
    """Return whether the accelerator is "hpu", or the name of the strategy starts with "hpu_"."""
    return flags.get("accelerator") == "hpu" or str(flags.get("strategy")).lower().startswith("hpu_")


@contextmanager
def suggest_flags(flags: Mapping[str, Any]) -> Iterator[None]:
    """Return a context in which an error for an invalid `accelerator` or `precision` ends with a suggestion."""
    try:
        yield
    # Lightning's MisconfigurationException derives from neither the other nor anything but Exception.
    except Exception as error:
        accelerator, precision = flags.get("accelerator"), flags.get("precision")
        text = str(error)
        if isinstance(accelerator, str) and repr(accelerator) in text and _is_gaudi(accelerator):
            append(error, "did you mean 'hpu', the name of Gaudi cards?")
        elif isinstance(precision, str) and repr(precision) in text and "precision" in text.lower():
            append(error, did_you_mean(precision, [*_PRECISIONS, *plugins.precisions()]))
        raise


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question after the nearest known name; empty if none is near."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def append(error: BaseException, suggestion: str) -> None:
    """Append a suggestion to the message of an error, in place, because not every error can be made from a message."""
    if suggestion and len(error.args) == 1:
        error.args = (f"{str(error).rstrip('.')}: {suggestion}",)


def _is_gaudi(accelerator: str) -> bool:
    name = accelerator.lower()
    return name != "hpu" and (name.startswith(_ACCELERATORS) or bool(difflib.get_close_matches(name, ["hpu"], n=1)))


REPLACEMENTS: Final = dict.fromkeys(("_AcceleratorConnector", "_Connector"), HintMixin)
