"""Subclasses of Lightning's connectors that choose accelerator, strategy and precision on HPU.

Lightning has one connector for the Trainer and one for Fabric. Both have the private methods in `REQUIRED`, from
Lightning 2.0 to 2.6, so one mixin serves both.
"""

import sys
from typing import Any, ClassVar, Final

from hpu_core import discovery, frameworks, plugins
from hpu_core.fp8 import installed_precision
from hpu_core.registration import _registries, _strategy_flags

_HINT: Final = "`hpu-info` lists where hpu-core searched for Gaudi cards; `hpu-sim run` simulates cards."

# Lightning's connector, which follows the mixin among the bases of its subclasses.
_Connector: Any = object


class HPUConnectorMixin(_Connector):  # type: ignore[misc] # see `_Connector`
    """Mixin for a connector; list it before Lightning's. It handles HPU and delegates everything else."""

    # Methods of Lightning's connectors that the mixin overrides.
    REQUIRED: ClassVar[tuple[str, ...]] = (
        "_check_and_init_precision",
        "_check_config_and_set_final_flags",
        "_check_strategy_and_fallback",
        "_choose_auto_accelerator",
        "_choose_strategy",
        "_init_strategy",
        "_set_parallel_devices_and_init_accelerator",
    )

    _devices_flag: Any
    _strategy_flag: Any

    _framework: ClassVar[frameworks.FrameworkName]
    _api: ClassVar[plugins.Api]

    # Names of the connector's attributes for the `precision` argument and for a precision plugin that the user passed.
    _precision_attr: ClassVar[str]
    _precision_plugin_attr: ClassVar[str]

    # The error if this process uses another framework on HPU. Set on construction.
    _import_error: Exception | None = None

    # Module ids of the devices that the user listed by index.
    _module_ids: tuple[int, ...] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Discovery takes a moment, and is for a process that has imported both.
        if len(frameworks.imported()) > 1 and (_names_hpu(kwargs) or _may_be_hpu(kwargs.get("accelerator"))):
            frameworks.prefer(self._framework)
        self._import_error = frameworks.import_error(self._framework)
        if self._import_error is None:
            _registries.register_all(self._api)
        try:
            super().__init__(*args, **kwargs)
        except Exception as error:
            # In place, because not every exception can be constructed from a message.
            if kwargs.get("accelerator") in ("gpu", "cuda") and len(error.args) == 1 and discovery.is_available():
                error.args = (f"{error} This machine has Gaudi cards: write `accelerator='hpu'`.",)
            raise

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        if self._import_error is not None:
            if _names_hpu(flags):
                raise self._import_error
        elif _names_hpu(flags) or self._may_choose_hpu(flags.get("accelerator")):
            flags["strategy"] = _strategy_flags.resolve(flags.get("strategy"), self._api)
            _check_available(flags)
        precision = flags.get("precision")
        if precision not in plugins.precisions():
            super()._check_config_and_set_final_flags(**flags)
            return
        # Lightning rejects values that it does not know, so it validates a known one instead.
        super()._check_config_and_set_final_flags(**{**flags, "precision": "bf16-mixed"})
        setattr(self, self._precision_attr, precision)

    def _choose_auto_accelerator(self) -> Any:
        # Before CUDA: a machine with Gaudi cards is there to train on them.
        if not discovery.is_available():
            return super()._choose_auto_accelerator()
        if self._import_error is not None:
            raise self._import_error
        return "hpu"

    def _set_parallel_devices_and_init_accelerator(self) -> None:
        is_hpu = self._accelerator_flag == "hpu" or self._is_hpu(self._accelerator_flag)
        devices = self._devices_flag
        try:
            super()._set_parallel_devices_and_init_accelerator()
            if is_hpu:
                self._module_ids = _select_modules(devices)
        except Exception as error:
            # In place, because not every exception can be constructed from a message.
            if is_hpu and len(error.args) == 1 and not discovery.is_available():
                error.args = (f"{error} {_HINT}",)
            raise

    def _choose_strategy(self) -> Any:
        if not self._is_hpu(self.accelerator):
            return super()._choose_strategy()
        if len(self._parallel_devices) == 1 and self._num_nodes_flag == 1:
            return "hpu_single"
        # As Lightning tells a notebook or an interactive interpreter.
        is_interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
        for plugin in plugins.installed().values():
            if is_interactive and plugin.default_notebook is not None:
                return plugin.default_notebook
            if plugin.default_multi_device is not None:
                return plugin.default_multi_device
        requested = f"`devices={len(self._parallel_devices)}`, `num_nodes={self._num_nodes_flag}`"
        raise plugins.not_installed_error(f"training on several Gaudi cards ({requested})", "hpu-ddp")

    def _check_strategy_and_fallback(self) -> None:
        # First: Lightning's check refuses its FSDPStrategy, by name or instance, with another accelerator than CUDA.
        if self._is_hpu(self.accelerator):
            self._strategy_flag = _strategy_flags.for_hpu(self._strategy_flag, self._api)
        super()._check_strategy_and_fallback()

    def _init_strategy(self) -> None:
        super()._init_strategy()
        if self._is_hpu(self.accelerator):
            self.strategy.module_ids = self._module_ids

    def _check_and_init_precision(self) -> Any:
        precision = getattr(self, self._precision_attr)
        if not self._is_hpu(self.accelerator):
            if precision in plugins.precisions():
                raise ValueError(
                    f"`precision={precision!r}` needs a Gaudi card, got {type(self.accelerator).__name__}: pass "
                    "`accelerator='hpu'`"
                )
            return super()._check_and_init_precision()
        if getattr(self, self._precision_plugin_attr) is not None:
            return super()._check_and_init_precision()
        if hasattr(self.strategy, "precision_plugin_for"):
            return self.strategy.precision_plugin_for(precision)
        if (plugin := installed_precision(precision, self._api)) is not None:
            return plugin
        if precision == "32-true":
            return super()._check_and_init_precision()
        if precision == "64-true":
            raise plugins.float64_error(precision)
        raise plugins.not_installed_error(f"`precision={precision!r}` on Gaudi", "hpu-precision")

    def _may_choose_hpu(self, accelerator: object) -> bool:
        """Return whether the `accelerator` argument selects HPU by an instance, or may do so by default."""
        return self._is_hpu(accelerator) or _may_be_hpu(accelerator)

    def _is_hpu(self, accelerator: object) -> bool:
        """Return whether an accelerator is an HPUAccelerator of this connector's framework."""
        return self._import_error is None and isinstance(accelerator, plugins.load(_registries.ACCELERATOR))


class TrainerConnectorMixin(HPUConnectorMixin):
    """Mixin for the Trainer's connector."""

    _api = "pytorch"
    _precision_attr = "_precision_flag"
    _precision_plugin_attr = "_precision_plugin_flag"


class FabricConnectorMixin(HPUConnectorMixin):
    """Mixin for Fabric's connector."""

    _api = "fabric"
    _precision_attr = "_precision_input"
    _precision_plugin_attr = "_precision_instance"


def _may_be_hpu(accelerator: object) -> bool:
    return accelerator in (None, "auto") and discovery.is_available()


def _names_hpu(flags: dict[str, Any]) -> bool:
    """Return whether the accelerator is "hpu", or the name of the strategy starts with "hpu_"."""
    return flags.get("accelerator") == "hpu" or str(flags.get("strategy")).lower().startswith("hpu_")


def _select_modules(devices: object) -> tuple[int, ...] | None:
    """Return the module ids of listed devices; the error for an invalid list is that of `parse_devices`."""
    from hpu_core._lightning import MisconfigurationException

    try:
        return discovery.select_modules(devices)
    except ValueError as error:
        raise MisconfigurationException(str(error)) from None


def _check_available(flags: dict[str, Any]) -> None:
    """Raise an error for a strategy of Gaudi if Lightning would choose the CPU for it."""
    from hpu_core._lightning import MisconfigurationException

    if _names_hpu(flags) and flags.get("accelerator") in {None, "auto"} and not discovery.is_available():
        strategy = flags["strategy"]
        raise MisconfigurationException(f"`{strategy=}` needs a Gaudi card, and none was found. {_HINT}")
