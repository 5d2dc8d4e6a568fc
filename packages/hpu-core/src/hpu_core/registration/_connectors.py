"""What Lightning's connectors decide where Gaudi is concerned: accelerator, strategy and precision.

Lightning has one connector for the Trainer and one for Fabric, which are written alike; `Selection` goes in front of
either. Their private names are the same on Lightning 2.0 to 2.6, and are listed in `REQUIRED` and `_Connector`.
"""

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hpu_core.registration import plugins

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName
    from hpu_core.registration.plugins import Api

REQUIRED: Final = (
    "_check_and_init_precision",
    "_check_config_and_set_final_flags",
    "_choose_auto_accelerator",
    "_choose_strategy",
    "_init_strategy",
    "_set_parallel_devices_and_init_accelerator",
)

if TYPE_CHECKING:

    class _Connector:
        """What is used of Lightning's connectors."""

        accelerator: Any
        strategy: Any
        _accelerator_flag: Any
        _num_nodes_flag: int
        _parallel_devices: list[Any]
        _strategy_flag: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def _check_and_init_precision(self) -> Any: ...
        def _check_config_and_set_final_flags(self, **flags: Any) -> None: ...
        def _choose_auto_accelerator(self) -> str: ...
        def _choose_strategy(self) -> Any: ...
        def _init_strategy(self) -> None: ...
        def _set_parallel_devices_and_init_accelerator(self) -> None: ...

else:
    _Connector = object


class Selection(_Connector):
    """Decides what concerns Gaudi, and leaves everything else to the connector that follows it in the bases."""

    _framework: ClassVar["FrameworkName"]
    _half: ClassVar["Api"]

    # What this connector calls the precision, and the precision plugin that the user passed.
    _precision_name: ClassVar[str]
    _plugin_name: ClassVar[str]

    # Why this framework's Trainer cannot train on Gaudi; decided when it is made.
    _refusal: Exception | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._refusal = refusal(self._framework)
        if self._refusal is None:
            from hpu_core.registration import _registries

            _registries.fill(self._half)
        super().__init__(*args, **kwargs)

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        if self._refusal is not None and "hpu" in {flags.get("accelerator"), str(flags.get("strategy"))[:3]}:
            raise self._refusal
        self._check_strategy_name(flags.get("strategy"))
        precision = flags.get("precision")
        if not _is_of_plugin(precision):
            super()._check_config_and_set_final_flags(**flags)
            return
        # Lightning refuses values that it does not know; this one stands for what it has to check.
        super()._check_config_and_set_final_flags(**{**flags, "precision": "bf16-mixed"})
        setattr(self, self._precision_name, precision)

    def _choose_auto_accelerator(self) -> str:
        # Before CUDA and the others: nobody puts a Gaudi card into a machine to train beside it.
        if not _is_available():
            return super()._choose_auto_accelerator()
        if self._refusal is not None:
            raise self._refusal
        return "hpu"

    def _set_parallel_devices_and_init_accelerator(self) -> None:
        asked = self._accelerator_flag == "hpu" or self._is_ours(self._accelerator_flag)
        try:
            super()._set_parallel_devices_and_init_accelerator()
        except Exception as error:
            if not asked or _is_available():
                raise
            raise type(error)(f"{error} `hpu-info` shows where a Gaudi card was looked for.") from error

    def _choose_strategy(self) -> Any:
        if not self._is_ours(self.accelerator):
            return super()._choose_strategy()
        if len(self._parallel_devices) == 1 and self._num_nodes_flag == 1:
            return "hpu_single"
        for plugin in plugins.installed().values():
            if plugin.default_multi_device is not None:
                return plugin.default_multi_device
        raise plugins.not_installed("training on more than one card (`devices=1`) and machine", "hpu-ddp")

    def _init_strategy(self) -> None:
        if self._is_ours(self.accelerator) and isinstance(self._strategy_flag, str):
            for plugin in plugins.installed().values():
                self._strategy_flag = plugin.aliases.get(self._strategy_flag, self._strategy_flag)
            error = plugins.missing(self._strategy_flag)
            if error is not None:
                raise error
        super()._init_strategy()

    def _check_and_init_precision(self) -> Any:
        precision = getattr(self, self._precision_name)
        if not self._is_ours(self.accelerator):
            if _is_of_plugin(precision):
                raise ValueError(
                    f"`precision={precision!r}` needs a Gaudi card, got {type(self.accelerator).__name__}: pass "
                    "`accelerator='hpu'`"
                )
            return super()._check_and_init_precision()
        if getattr(self, self._plugin_name) is not None:
            return super()._check_and_init_precision()
        if hasattr(self.strategy, "precision_plugin_for"):
            return self.strategy.precision_plugin_for(precision)
        for plugin in plugins.installed().values():
            target = plugin.precision.of(self._half) if plugin.precision else None
            if target is not None:
                return plugins.load(target)(precision)
        if precision == "32-true":
            return super()._check_and_init_precision()
        raise plugins.not_installed(f"`precision={precision!r}` on Gaudi", "hpu-precision")

    def _check_strategy_name(self, strategy: object) -> None:
        """Say what to install for one of our strategies that is not there; Lightning names those that are."""
        if self._refusal is None and isinstance(strategy, str) and strategy.lower().startswith("hpu_"):
            error = plugins.missing(strategy.lower())
            if error is not None:
                raise error

    def _is_ours(self, accelerator: object) -> bool:
        """Tell whether an accelerator is an HPUAccelerator of this connector's framework."""
        if self._refusal is not None:
            return False
        from hpu_core.accelerator import HPUAccelerator

        return isinstance(accelerator, HPUAccelerator)


class TrainerSelection(Selection):
    """The decisions for the Trainer."""

    _half = "pytorch"
    _precision_name = "_precision_flag"
    _plugin_name = "_precision_plugin_flag"


class FabricSelection(Selection):
    """The decisions for Fabric."""

    _half = "fabric"
    _precision_name = "_precision_input"
    _plugin_name = "_precision_instance"


def for_trainer(connector: type, framework: "FrameworkName") -> type:
    """Return a subclass of the Trainer's connector that knows Gaudi.

    Args:
        connector: Lightning's `_AcceleratorConnector`.
        framework: Whose it is.

    Raises:
        NotImplementedError: The connector is made otherwise than on the Lightning versions that are known.
    """
    return _subclass(TrainerSelection, connector, framework)


def for_fabric(connector: type, framework: "FrameworkName") -> type:
    """Return a subclass of Fabric's connector that knows Gaudi; for the rest see `for_trainer`."""
    return _subclass(FabricSelection, connector, framework)


def _subclass(selection: type[Selection], connector: type, framework: "FrameworkName") -> type:
    missing = [name for name in REQUIRED if not callable(getattr(connector, name, None))]
    if missing:
        raise NotImplementedError(
            f"its {connector.__name__} has no {', '.join(missing)}, as it has on Lightning 2.0 to 2.6; a newer "
            "hpu-core may know it"
        )

    # With the original's parameters, by which Lightning's tests compare it with the Trainer and Fabric.
    @functools.wraps(vars(connector)["__init__"])
    def init(self: Selection, *args: Any, **kwargs: Any) -> None:
        selection.__init__(self, *args, **kwargs)

    # By the original's name and in its module, whose place it takes: so it can be pickled, and what was pickled can be
    # loaded where nothing was replaced.
    namespace = {
        "__doc__": connector.__doc__,
        "__module__": connector.__module__,
        "__qualname__": connector.__qualname__,
        "_framework": framework,
        "__init__": init,
    }
    return type(connector.__name__, (selection, connector), namespace)


def _is_of_plugin(precision: object) -> bool:
    """Tell whether a precision is one that a plugin knows and Lightning does not."""
    return isinstance(precision, str) and any(precision in plugin.precisions for plugin in plugins.installed().values())


def _is_available() -> bool:
    """Tell whether there is a card. Opens none."""
    # Discovery is more than a program that never makes a Trainer should load.
    from hpu_core import discovery

    return discovery.is_available()


def check(framework: "FrameworkName") -> None:
    """Refuse to make something of ours for the framework that this process does not use on Gaudi.

    Raises:
        ImportError: `framework` is the other one, or cannot be used.
        ValueError: HPU_CORE_FRAMEWORK names no framework.
    """
    error = refusal(framework)
    if error is not None:
        raise error


def refusal(framework: "FrameworkName") -> Exception | None:
    """Return why `framework` cannot train on Gaudi in this process, None where it can."""
    from hpu_core import frameworks

    try:
        current = frameworks.current()
    except (ImportError, ValueError) as error:
        return error
    if current.name == framework:
        return None
    return ImportError(
        f"the Gaudi packages use {current.name} in this process, and this Trainer or Fabric is {framework}'s: import "
        f"one of the two only, set {frameworks.OVERRIDE}={framework}, or pass `accelerator='cpu'` here"
    )
