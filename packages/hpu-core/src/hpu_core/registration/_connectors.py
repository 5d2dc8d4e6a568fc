"""Subclasses of Lightning's connectors that choose accelerator, strategy and precision on HPU.

Lightning has one connector for the Trainer and one for Fabric. Both have the private methods listed in `REQUIRED`, from
Lightning 2.0 to 2.6, so one mixin serves both.
"""

import functools
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hpu_core import discovery, frameworks, plugins
from hpu_core.registration import _hints, _registries, _strategy_flags

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName
    from hpu_core.plugins import Api

HINT: Final = "`hpu-info` lists where hpu-core searched for Gaudi cards; `hpu-sim run` simulates cards."
"""Last sentence of errors on machines without a device."""

REQUIRED: Final = (
    "_check_and_init_precision",
    "_check_config_and_set_final_flags",
    "_check_strategy_and_fallback",
    "_choose_auto_accelerator",
    "_choose_strategy",
    "_init_strategy",
    "_set_parallel_devices_and_init_accelerator",
)

if TYPE_CHECKING:

    class _Connector:
        """The members of Lightning's connectors that the mixin uses."""

        accelerator: Any
        strategy: Any
        _accelerator_flag: Any
        _devices_flag: Any
        _num_nodes_flag: int
        _parallel_devices: list[Any]
        _strategy_flag: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def _check_and_init_precision(self) -> Any: ...
        def _check_config_and_set_final_flags(self, **flags: Any) -> None: ...
        def _check_strategy_and_fallback(self) -> None: ...
        def _choose_auto_accelerator(self) -> str: ...
        def _choose_strategy(self) -> Any: ...
        def _init_strategy(self) -> None: ...
        def _set_parallel_devices_and_init_accelerator(self) -> None: ...

else:
    _Connector = object


class HPUConnectorMixin(_Connector):
    """Mixin for a connector; list it before Lightning's. It handles HPU and delegates everything else."""

    _framework: ClassVar["FrameworkName"]
    _api: ClassVar["Api"]

    # Names of the connector's attributes for the `precision` argument and for a precision plugin that the user passed.
    _precision_attr: ClassVar[str]
    _precision_plugin_attr: ClassVar[str]

    # The error if this process uses another framework on HPU. Set on construction.
    _import_error: Exception | None = None

    # Module ids of the devices that the user listed by index.
    _module_ids: tuple[int, ...] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._import_error = frameworks.import_error(self._framework)
        if self._import_error is None:
            _registries.register_all(self._api)
        super().__init__(*args, **kwargs)

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        if self._import_error is not None:
            if _names_hpu(flags):
                raise self._import_error
        elif _names_hpu(flags) or self._may_choose_hpu(flags.get("accelerator")):
            flags["strategy"] = _strategy_flags.resolve(flags.get("strategy"), self._api)
            _check_available(flags)
        precision = flags.get("precision")
        if not _is_plugin_precision(precision):
            with _hints.of_flags(flags):
                super()._check_config_and_set_final_flags(**flags)
            return
        # Lightning rejects values that it does not know, so it validates a known one instead.
        super()._check_config_and_set_final_flags(**{**flags, "precision": "bf16-mixed"})
        setattr(self, self._precision_attr, precision)

    def _choose_auto_accelerator(self) -> str:
        # Before CUDA: a machine with Gaudi cards is there to train on them.
        if not discovery.is_available():
            return super()._choose_auto_accelerator()
        if self._import_error is not None:
            raise self._import_error
        return "hpu"

    def _set_parallel_devices_and_init_accelerator(self) -> None:
        is_hpu = self._accelerator_flag == "hpu" or self._is_hpu(self._accelerator_flag)
        if is_hpu and self._devices_flag == "auto" and self._is_single_device_strategy():
            self._devices_flag = 1
        devices = self._devices_flag
        try:
            super()._set_parallel_devices_and_init_accelerator()
            if is_hpu:
                self._module_ids = _select_modules(devices)
        except Exception as error:
            # In place, because not every exception can be constructed from a message.
            if is_hpu and len(error.args) == 1 and not discovery.is_available():
                error.args = (f"{error} {HINT}",)
            raise

    def _choose_strategy(self) -> Any:
        if not self._is_hpu(self.accelerator):
            return super()._choose_strategy()
        if len(self._parallel_devices) == 1 and self._num_nodes_flag == 1:
            return "hpu_single"
        for plugin in plugins.installed().values():
            if _is_interactive() and plugin.default_notebook is not None:
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
            if _is_plugin_precision(precision):
                raise ValueError(
                    f"`precision={precision!r}` needs a Gaudi card, got {type(self.accelerator).__name__}: pass "
                    "`accelerator='hpu'`"
                )
            return super()._check_and_init_precision()
        if getattr(self, self._precision_plugin_attr) is not None:
            return super()._check_and_init_precision()
        if hasattr(self.strategy, "precision_plugin_for"):
            return self.strategy.precision_plugin_for(precision)
        for plugin in plugins.installed().values():
            path = plugin.precision.of(self._api) if plugin.precision else None
            if path is not None:
                return plugins.load(path)(precision)
        if precision == "32-true":
            return super()._check_and_init_precision()
        if precision == "64-true":
            raise plugins.float64_error(precision)
        raise plugins.not_installed_error(f"`precision={precision!r}` on Gaudi", "hpu-precision")

    def _may_choose_hpu(self, accelerator: object) -> bool:
        """Return whether the `accelerator` argument selects HPU by an instance, or may do so by default."""
        return self._is_hpu(accelerator) or (accelerator in (None, "auto") and discovery.is_available())

    def _is_single_device_strategy(self) -> bool:
        path = _registries.STRATEGY.of(self._api)
        return self._strategy_flag == "hpu_single" or isinstance(self._strategy_flag, plugins.load(str(path)))

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


class HintMixin(_Connector):
    """Mixin for a connector on a machine without a device: its errors for names of Gaudi end with `HINT`."""

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        try:
            with _hints.of_flags(flags):
                super()._check_config_and_set_final_flags(**flags)
        except ValueError as error:
            if len(error.args) == 1 and _names_hpu(flags):
                error.args = (f"{error} No Gaudi card was found: {HINT}",)
            raise


def subclass(connector: type, framework: "FrameworkName", mixin: type) -> type:
    """Return a subclass of a connector that has the name and module of the original.

    Args:
        connector: Lightning's `_AcceleratorConnector` or `_Connector`.
        framework: The framework that it belongs to.
        mixin: One of the mixins of this module.

    Raises:
        NotImplementedError: The mixin supports HPU, and the connector lacks a method of `REQUIRED`.
    """
    required = REQUIRED if issubclass(mixin, HPUConnectorMixin) else ()
    missing = [name for name in required if not callable(getattr(connector, name, None))]
    if missing:
        raise NotImplementedError(
            f"{connector.__name__} has no {', '.join(missing)}, unlike in Lightning 2.0 to 2.6; a newer hpu-core may "
            "support it"
        )

    # `wraps` keeps the signature, which Lightning's tests compare with those of Trainer and Fabric.
    @functools.wraps(vars(connector)["__init__"])
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        super(replacement, self).__init__(*args, **kwargs)  # type: ignore[arg-type] # a class made at run time

    # With the original's name and module, so that a pickled Trainer also loads where nothing is patched.
    namespace = {
        "__doc__": connector.__doc__,
        "__module__": connector.__module__,
        "__qualname__": connector.__qualname__,
        "_framework": framework,
        "__init__": init,
    }
    replacement = type(connector.__name__, (mixin, connector), namespace)
    return replacement


def _is_plugin_precision(precision: object) -> bool:
    """Return whether a plugin, but not Lightning, accepts this value of `precision`."""
    return isinstance(precision, str) and any(precision in plugin.precisions for plugin in plugins.installed().values())


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
    """Raise an error for a strategy of Gaudi if Lightning would choose the CPU for it.

    Raises:
        MisconfigurationException: No device can be used.
    """
    from hpu_core._lightning import MisconfigurationException

    if _names_hpu(flags) and flags.get("accelerator") in {None, "auto"} and not discovery.is_available():
        strategy = flags["strategy"]
        raise MisconfigurationException(f"`{strategy=}` needs a Gaudi card, and none was found. {HINT}")


def _is_interactive() -> bool:
    """Return whether this process is a notebook or an interactive interpreter, as Lightning tells it."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)
