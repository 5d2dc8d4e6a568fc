"""Take-over of Lightning's Trainer and Fabric, and of their loggers.

``Trainer.fit`` runs the planned steps, then the program ends. With Fabric, steps are those of the optimizers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from torch.nn.parallel import DistributedDataParallel

from hpu_sim.common import post_import
from hpu_sim.plan import errors, modules
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.patches import replace
from hpu_sim.plan.recorder import is_compiled
from hpu_sim.prediction.recording import STEPS_OF_DDP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.recorder import PlanRecorder
    from hpu_sim.prediction.recording import Phase, Recording

_TRAINERS: Final = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
_FABRICS: Final = ("lightning.fabric.fabric", "lightning_fabric.fabric")
_EPOCHS: Final = 1000
# Callbacks of Lightning that write files, read values for people, need validation, or train on their own.
_DROPPED: Final = (
    "BatchSizeFinder",
    "Checkpoint",
    "EarlyStopping",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelSummary",
    "ProgressBar",
    "SaveConfigCallback",
    "Timer",
)
# What of a logger writes.
_WRITING: Final = (
    "experiment", "log_metrics", "log_hyperparams", "log_graph", "save", "finalize", "after_save_checkpoint",
)  # fmt: skip

# End of the names of strategies that keep the optimizer on the host.
_OFFLOAD: Final = "_offload"
_OFFLOADED: Final = "The optimizer runs on the host: the time of that, and of the transfers, is not predicted."
_SECTIONS: Final = ("offload_optimizer", "offload_param")


@contextlib.contextmanager
def taken_over(recorder: PlanRecorder) -> Iterator[None]:
    """Take over the Trainer and Fabric of either distribution of Lightning, imported now or later."""
    with contextlib.ExitStack() as stack:
        is_active = True

        def take(module: str, name: str, **functions: Callable[..., Any]) -> None:
            """Call functions in place of a class's methods, with the recorder and the original method first."""

            def put() -> None:
                owner = getattr(sys.modules[module], name)
                for method, function in functions.items() if is_active else ():
                    replace(stack, owner, method, _wrap(getattr(owner, method), function, recorder))

            post_import.after_import(module, put)

        take("deepspeed", "DeepSpeedEngine", backward=_as_part("backward"), step=_as_part("optimizer"))
        take("torchmetrics", "Metric", _wrap_update=_wrap_update)
        for each in _TRAINERS:
            take(each, "Trainer", __init__=_init_trainer, fit=_fit)
        for each in _FABRICS:
            take(each, "Fabric", __init__=_init, setup=_setup, setup_module=_setup)
        try:
            yield
        finally:
            is_active = False


def _wrap(original: Any, function: Callable[..., Any], recorder: PlanRecorder) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(recorder, original, *args, **kwargs)

    return method


def _init(recorder: PlanRecorder, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    options = recorder.options
    kwargs.update(accelerator="hpu", devices=options.devices, num_nodes=options.nodes)
    if options.strategy is not None:
        kwargs["strategy"] = options.strategy
    if options.world_size > 1 and kwargs.get("strategy") in {"hpu_single", "single_device"}:
        kwargs.pop("strategy")
    if options.precision is not None:
        kwargs["precision"] = options.precision
    try:
        original(self, *args, **kwargs)
    except Exception as error:
        chosen = {"--strategy": options.strategy, "--precision": options.precision}
        given = " ".join(f"{name} {value}" for name, value in chosen.items() if value is not None)
        if not given:
            raise
        raise PlanError(f"`{given}` is refused: {error}", errors.location_of(error)) from error
    for logger in self.loggers:
        _silence(logger)


def _init_trainer(recorder: PlanRecorder, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    _init(recorder, original, self, *args, **{**kwargs, "fast_dev_run": False})


def _wrap_update(recorder: PlanRecorder, original: Any, metric: Any, update: Any) -> Any:
    """Leave out updates of metrics that need values, which training does not."""
    wrapped = original(metric, update)

    @functools.wraps(wrapped)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            wrapped(*args, **kwargs)
        except PlanError:
            recorder.error = None
            recorder.notes.add(f"The metric {type(metric).__name__} needs values, and is left out.")

    return call


def _as_part(phase: Phase) -> Callable[..., Any]:
    """Count all that a method of DeepSpeed's engine does as a part of the step, such as reductions after autograd."""

    def call(recorder: PlanRecorder, original: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.has_ddp = True
        with recorder.during(phase):
            return original(*args, **kwargs)

    return call


def _describe_strategy(strategy: Any, precision: Any, recorder: PlanRecorder) -> None:
    """Record a strategy and its precision, before DeepSpeed reads its configuration."""
    recording = recorder.recording
    recording.strategy = getattr(strategy, "strategy_name", type(strategy).__name__)
    recording.precision = str(precision)
    if "deepspeed" in type(strategy).__name__.lower():
        recording.strategy = zero_name(strategy.config)
        keep_in_memory(strategy.config)
        strategy.remote_device = strategy.remote_device and "cpu"  # That of ZeRO-3's parameters may be a file.
        recorder.notes.update([_OFFLOADED] if _OFFLOAD in recording.strategy else [])


def zero_name(config: dict[str, Any]) -> str:
    """Return the strategy of a configuration of DeepSpeed.

    >>> zero_name({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})
    'deepspeed_stage_3_offload'
    """
    options = config.get("zero_optimization", {})
    device = (options.get(_SECTIONS[0]) or {}).get("device", "none")
    return f"deepspeed_stage_{options.get('stage', 2)}{'' if device == 'none' else _OFFLOAD}"


def keep_in_memory(config: dict[str, Any]) -> None:
    """Change a configuration of DeepSpeed to one that writes no files and compiles nothing.

    What it would keep in files is kept in the host's memory, which a plan does not touch. Its Adam of the host, which
    computes on that memory, is torch's.
    """
    options = config.get("zero_optimization", {})
    found = [options[name] for name in _SECTIONS if (options.get(name) or {}).get("device", "none") != "none"]
    for section in found:
        section.update(device="cpu", pin_memory=False)
    if found and "optimizer" in config:
        config["zero_force_ds_cpu_optimizer"] = False
        config["optimizer"].setdefault("params", {})["torch_adam"] = True


def _fit(recorder: PlanRecorder, original: Any, trainer: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    kwargs.pop("ckpt_path", None)
    recorder.fits = True
    # Before a program shards its blocks, unless it makes them only then.
    before = recorder.options.checkpoint if modules.repeated_blocks(model) else 0
    modules.recompute_blocks(model, before)

    def change() -> None:
        modules.recompute_blocks(model, recorder.options.checkpoint - before)
        if recorder.options.precision == "fp8":
            # As a program for fp8 does.
            trainer.strategy.precision_plugin.convert_modules(model, replace_layers=True)
        recorder.count_parameters(model)

    if _overrides(model, "configure_model"):
        # It may make layers.
        _after(model, "configure_model", change)
    else:
        change()
    _prepare(trainer, model, recorder, original.__module__.removesuffix(".trainer.trainer"))
    original(trainer, model, *args, **kwargs)


def _overrides(model: Any, method: str) -> bool:
    """Return whether a program has a method of its own in place of Lightning's; Lightning 2.0 has not all of them."""
    function = getattr(type(model), method, None)
    return function is not None and function.__module__.partition(".")[0] not in {"lightning", "pytorch_lightning"}


def _after(owner: Any, method: str, function: Callable[[], None]) -> None:
    """Call a function after a method."""
    original = getattr(owner, method)

    def call() -> None:
        original()
        function()

    setattr(owner, method, call)


def _setup(recorder: PlanRecorder, original: Any, fabric: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Take the first model, by `setup` with its optimizers or by `setup_module`."""
    if recorder.recording.parameters:
        return original(fabric, module, *args, **kwargs)
    _describe_strategy(fabric.strategy, fabric.strategy.precision.precision, recorder)
    modules.recompute_blocks(module, recorder.options.checkpoint)
    result = original(fabric, module, *args, **kwargs)
    recorder.describe_model(module)
    wrapper = result[0] if isinstance(result, tuple) else result
    recorder.has_ddp = isinstance(getattr(wrapper, "_forward_module", None), DistributedDataParallel)
    return result


def _prepare(trainer: Any, model: Any, recorder: PlanRecorder, package: str) -> None:
    """Limit a Trainer to the planned steps, without validation, files and messages."""
    recording = recorder.recording
    callback_class = importlib.import_module(f"{package}.callbacks").Callback
    trainer.callbacks = [
        each
        for each in trainer.callbacks
        if not any(base.__name__ in _DROPPED and base.__module__.startswith(package) for base in type(each).__mro__)
    ]
    trainer.callbacks.append(_make_callback(callback_class, recorder))
    if trainer.limit_val_batches and _overrides(model, "validation_step"):
        recorder.notes.add("Validation is left out: its batches may need more memory if they are larger.")
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0
    # Enough epochs for the steps, of however few batches. Schedules and callbacks need a number.
    if trainer.fit_loop.max_epochs != -1:
        trainer.fit_loop.max_epochs = max(trainer.fit_loop.max_epochs or 0, _EPOCHS)
    if trainer.fit_loop.epoch_loop.max_steps > 0:
        trainer.fit_loop.epoch_loop.max_steps = max(trainer.fit_loop.epoch_loop.max_steps, STEPS_OF_DDP)
    _describe_strategy(trainer.strategy, trainer.precision, recorder)
    recording.sequence_parts = getattr(trainer.strategy, "context_parallel_size", 1)
    recording.compiled = recorder.options.compiled or is_compiled(model)
    # A handler of Lightning would agree with other ranks on the end.
    trainer._signal_connector.register_signal_handlers = lambda: None  # noqa: SLF001 - no option has this effect
    # hpu-core leaves it out of each step of a run.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # noqa: SLF001 - no option has this effect
    # The recorder needs nothing moved back, and moving swaps tensors that the memory tracker refers to.
    trainer.strategy.teardown = lambda: None


def _make_callback(base: type[Any], recorder: PlanRecorder) -> Any:
    class PlanCallback(base):  # type: ignore[misc] # Lightning's class is Any here
        """Begins the first step of the plan, and names the batches of all."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            recorder.describe_model(pl_module)
            recorder.recording.replicas = _replicas(trainer.strategy, recorder.recording)
            recorder.has_ddp = type(trainer.strategy.model).__name__ == "DistributedDataParallel"
            recorder.start()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            del trainer, pl_module, batch_idx
            recorder.batches.add(None, batch)

    return PlanCallback()


def _replicas(strategy: Any, recording: Recording) -> int:
    """Return the ranks with batches of their own; 0 for all. Those that share layers or sequences share batches."""
    # Lightning's ModelParallelStrategy has made its mesh.
    sizes = getattr(strategy, "_tensor_parallel_size", 1)
    parts = (sizes if isinstance(sizes, int) else 1) * recording.sequence_parts
    return recording.world_size // parts if parts > 1 else 0


class _Sink:
    """Experiment of a logger: each of its attributes, items and results is itself, and it keeps nothing."""

    def __getattr__(self, name: str) -> _Sink:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _Sink:
        del args, kwargs
        return self

    __getitem__ = __setitem__ = __call__


def _silence(logger: Any) -> None:
    """Have a logger of Lightning write nothing; it keeps its class for the program's checks and has every method."""
    cls = type(logger)
    logger.__class__ = type(cls.__name__, (cls,), dict.fromkeys(_WRITING, _Sink()))
