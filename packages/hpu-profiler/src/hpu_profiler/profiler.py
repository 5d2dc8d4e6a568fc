"""Profiler for Lightning's Trainer."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import uuid
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpu_profiler import _call_lines, _lightning, _schedule, _source_lines, _torch_options
from hpu_profiler.__about__ import __version__
from hpu_profiler._lightning import MAIN_STEP_KINDS, PyTorchProfiler, rank_zero_info, rank_zero_warn
from hpu_profiler._session import ProfileSession, SessionManager
from hpu_profiler._summary import SORT_KEYS, format_table
from hpu_profiler._trace_writer import TraceWriter
from hpu_profiler.analysis.operators import merge_operator_stats, operator_stats
from hpu_profiler.trace.reader import TraceError, read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.autograd.profiler_util import EventList
    from torch.profiler import ProfilerAction, ProfilerActivity

    from hpu_profiler.trace.model import Trace

__all__ = ["HPUProfiler"]


class HPUProfiler(PyTorchProfiler):
    """Profiler that records host and device in some steps, and writes traces and a summary.

    Use it as `Trainer(accelerator=HPUAccelerator(), profiler=HPUProfiler())` or `Trainer(profiler="hpu")`. Without a
    device it records the host, as PyTorchProfiler does. A step is a whole batch: data loading, forward, backward and
    optimizer. Training, validation, test and predict steps have separate traces.

    Args:
        dirpath: Directory for traces and summaries; None for the Trainer's `log_dir`.
        filename: Name for the summary files of all ranks; None to log the summary.
        group_by_input_shapes: Whether the summary has a row for each combination of input shapes. Needs
            `record_shapes=True`.
        export_to_chrome: Whether traces are written. Without them, there is a summary only.
        row_limit: Number of rows in the summary; -1 for all.
        sort_by_key: Member of `AVAILABLE_SORT_KEYS` by which the summary is sorted; None for device time, or CPU time
            without a device.
        record_module_names: Whether traces have an annotation for the forward pass of each module.
        activities: Activities to record; None for the CPU, and for the HPU if there is a device.
        schedule: Function of a step's number that returns the action for the step. "default" skips one step, warms up
            for one and records three, or records all steps of a run with fewer than five. None records all steps.
        on_trace_ready: Called with torch's profiler after each trace is written.
        record_shapes: Whether input shapes are recorded.
        profile_memory: Whether allocations are recorded.
        with_stack: Whether stacks are recorded.
        with_flops: Whether torch estimates the FLOPs of some operators.
        with_modules: Whether the module hierarchy of TorchScript models is recorded.
        experimental_config: Kineto's experimental options, a `torch._C._profiler._ExperimentalConfig`.
        export_to_flame_graph: Whether a `.stack` file for flame graph tools is written with each trace. Needs
            `with_stack=True`.
        metric: Metric of the `.stack` files, "self_cpu_time_total" or "self_cuda_time_total".
        max_steps_per_trace: Number of recorded steps after which a trace ends, whatever the schedule returns. It
            bounds the memory that a trace needs.
        **profiler_kwargs: Arguments of torch.profiler.profile that only some torch releases have.

    Raises:
        ValueError: `sort_by_key` or `max_steps_per_trace` is invalid, or `export_to_flame_graph` is combined with
            `with_stack=False`.
        TypeError: `schedule` is not a schedule, or the installed torch does not have an argument.
    """

    AVAILABLE_SORT_KEYS = set(SORT_KEYS)  # noqa: RUF012 - PyTorchProfiler annotates it as an instance attribute
    #: Empty, because `stop` ends a step after the whole batch. PyTorchProfiler would end it after these functions.
    STEP_FUNCTIONS = set()  # noqa: RUF012 - as above

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of PyTorchProfiler and torch.profiler.profile
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = False,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | Literal["default"] | None = "default",
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        export_to_flame_graph: bool = False,
        metric: str = "self_cpu_time_total",
        max_steps_per_trace: int = 100,
        **profiler_kwargs: Any,
    ) -> None:
        # Before anything that can raise: PyTorchProfiler's `__del__` stops the sessions.
        self._sessions = SessionManager("", self._create_session)
        self._is_active = False
        self._last_recording: Any = None
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            group_by_input_shapes=group_by_input_shapes,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            # Otherwise PyTorchProfiler chooses a key for CUDA on a machine with CUDA.
            sort_by_key="cpu_time_total",
            record_module_names=record_module_names,
            record_shapes=record_shapes,
        )
        if sort_by_key is not None and sort_by_key not in SORT_KEYS:
            raise ValueError(f"`sort_by_key` must be one of {sorted(SORT_KEYS)}, got {sort_by_key!r}")
        if max_steps_per_trace < 1:
            raise ValueError(f"`max_steps_per_trace` must be a positive int, got {max_steps_per_trace!r}")
        if export_to_flame_graph and not with_stack:
            raise ValueError("`export_to_flame_graph=True` needs `with_stack=True`, got `with_stack=False`")
        _torch_options.validate_names(profiler_kwargs)
        _schedule.validate_schedule(schedule)
        self._torch_arguments = {
            **profiler_kwargs,
            "activities": activities,
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "with_modules": with_modules,
            "experimental_config": experimental_config,
        }
        self._summary_sort_key = sort_by_key
        self._step_schedule = schedule
        self._on_trace_ready = on_trace_ready
        self._export_to_flame_graph = export_to_flame_graph
        self._metric = metric
        self._max_steps_per_trace = max_steps_per_trace
        self._writer: TraceWriter | None = None
        self._last_summary = ""
        self._metadata: dict[str, Any] = {}
        self._run = uuid.uuid4().hex
        self._handled_error: BaseException | None = None

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Prepare for a run.

        Args:
            stage: "fit", "validate", "test" or "predict".
            local_rank: Rank on the node. Files are named by the global rank, which is unique on a shared disk.
            log_dir: The Trainer's `log_dir`.

        Raises:
            RuntimeError: HABANA_PROFILE disables torch's profiler.
        """
        self._stop_sessions()
        self._sessions = SessionManager(MAIN_STEP_KINDS[stage], self._create_session)
        trainer = self._trainer
        rank = local_rank if local_rank is None or trainer is None else trainer.global_rank
        super().setup(stage, rank, log_dir)
        self._writer = None
        self._last_summary = ""
        on_device = _lightning.has_device(trainer)
        if on_device:
            _torch_options.check_environment(os.environ)
        self._metadata = {"version": __version__, "on_device": on_device, **_lightning.rank_metadata(trainer)}

    def start(self, action_name: str) -> None:
        """Start an action, which is annotated in the trace if one is being recorded.

        Args:
            action_name: Name of the action.
        """
        info = _lightning.classify_action(action_name, self._stage)
        if info.is_failure:
            # Lightning does not call `describe` after a failure.
            self._stop_sessions()
        elif (
            info.starts_step is not None
            and not _lightning.is_sanity_checking(self._trainer)
            and self._sessions.start_step(info.starts_step)
        ):
            self._update()
        if info.ends_step is not None:
            # A Trainer may run while its caller handles an exception.
            self._handled_error = sys.exc_info()[1]
        if self._is_active:
            super().start(action_name)

    def stop(self, action_name: str) -> None:
        """End an action.

        Args:
            action_name: Name of the action.
        """
        if action_name in self._recording_map:
            super().stop(action_name)
        kind = _lightning.classify_action(action_name, self._stage).ends_step
        if kind is None:
            return
        handled, self._handled_error = self._handled_error, None
        if sys.exc_info()[1] is not handled:
            # The step failed, and Lightning calls `on_exception` only if there are callbacks.
            self._stop_sessions()
        elif not _lightning.is_sanity_checking(self._trainer):
            # An annotation that crosses the end of a step would not nest with the annotation of the step.
            self._end_annotations()
            if self._sessions.end_step(kind):
                self._update()

    def summary(self) -> str:
        """Return a table of the operators in the traces, with calls, CPU time, device time and memory.

        A trace that is being recorded ends here.

        Returns:
            The table for the current or last run; empty if nothing was recorded.
        """
        if self._is_active:
            self._stop_sessions()
        infos = []
        parts = []
        for trace in self._read_traces():
            infos.append(trace.info)
            parts.append(operator_stats(trace, group_by_shapes=self._group_by_input_shapes))
        if infos:
            table = format_table(
                infos, merge_operator_stats(parts), sort_by=self._summary_sort_key, row_limit=self._row_limit
            )
            self._last_summary = self._stats_to_str({"records": table})
        return self._last_summary

    def describe(self) -> None:
        """Write the summary to its file or to Lightning's log.

        Warns:
            UserWarning: The summary or a trace could not be written. It is no error, because training is complete.
        """
        self._stop_sessions(keep_empty=False)
        self._log_limits()
        self._log_report()
        try:
            super().describe()
        except OSError as error:
            self._get_writer().add_error(f"the summary in {self.dirpath}", error)
            rank_zero_info(self.summary())
            self.teardown(stage=self._stage)
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.cleanup()
            if writer.errors:
                warnings.warn("HPUProfiler: " + " ".join(writer.errors), stacklevel=2)

    @property
    def function_events(self) -> EventList | None:
        """Events of the last trace, which torch parses on first access; None before the first trace.

        torch 2.4 adds the events of earlier traces.
        """
        return None if self._last_recording is None else self._last_recording.function_events

    @function_events.setter
    def function_events(self, events: EventList | None) -> None:
        # PyTorchProfiler resets its attribute.
        self._last_recording = events

    def _init_kineto(self, profiler_kwargs: Any) -> None:
        """Do nothing; PyTorchProfiler would look up names of torch that the bridge may replace later."""

    def _delete_profilers(self) -> None:
        """Stop all sessions; PyTorchProfiler calls this in `teardown`."""
        self._stop_sessions()

    @property
    def _trainer(self) -> Any:
        """Trainer of the current run; None if there is none."""
        try:
            return getattr(self._lightning_module, "_trainer", None)
        except ReferenceError:
            # Lightning passes a weak reference to a module that has been deleted since.
            return None

    def _create_session(self, kind: str) -> ProfileSession:
        schedule = self._step_schedule if kind else None
        if schedule == "default":
            schedule = _schedule.default_schedule()
            if _lightning.expected_steps(self._trainer, kind) < _schedule.MIN_DEFAULT_STEPS:
                rank_zero_info(f"HPUProfiler: too few {kind} steps for the default schedule; all of them are recorded.")
                schedule = None
        on_device = self._metadata.get("on_device", _lightning.has_device(self._trainer))
        return ProfileSession(
            kind,
            _schedule.StepSchedule(schedule, max_steps_per_trace=self._max_steps_per_trace),
            _torch_options.torch_options(
                self._torch_arguments, on_device=on_device, verbose=self._export_to_flame_graph
            ),
            metadata={
                **self._metadata,
                "run": self._run,
                "on_device": on_device,
                "stage": kind,
                "sources": _source_lines.hook_lines(_lightning.hook_owners(self._trainer)),
                # A Python function of another package is the user's.
                "libraries": _source_lines.installed_packages() if self._torch_arguments["with_stack"] else [],
            },
            on_trace_ready=functools.partial(self._write_trace, kind),
        )

    def _stop_sessions(self, *, keep_empty: bool = True) -> None:
        self._end_annotations()
        try:
            self._sessions.stop(keep_empty=keep_empty)
        finally:
            self._update()

    def _update(self) -> None:
        """Update what depends on the state of the sessions."""
        started = self._sessions.started
        self._is_active = self._sessions.active is not None
        self.profiler = started[0].profile if started else None
        if started:
            _recording_profilers().add(self)
        else:
            _recording_profilers().discard(self)
        if self._register is not None and not self._is_active:
            self._register.__exit__(None, None, None)
            self._register = None

    def _end_annotations(self) -> None:
        for action_name in reversed(list(self._recording_map)):
            self._recording_map.pop(action_name).__exit__(None, None, None)

    def _get_writer(self) -> TraceWriter:
        if self._writer is None:
            directory = Path(self.dirpath) if self.dirpath is not None and self._export_to_chrome else None
            self._writer = TraceWriter(directory)
        return self._writer

    def _write_trace(self, kind: str, profile: Any) -> None:
        # The session's profile gets another one for the next trace.
        self._last_recording = profile.profiler
        writer = self._get_writer()
        name = self._prepare_filename(action_name=kind or None, extension="")
        writer.write(name, functools.partial(self._export, profile))
        if self._export_to_flame_graph and self.dirpath is not None:
            path = Path(self.dirpath) / self._prepare_filename(action_name=kind or None, extension=".stack")
            try:
                profile.export_stacks(str(path), self._metric)
            except OSError as error:
                writer.add_error(f"the stacks {path}", error)
        if self._on_trace_ready is not None:
            self._on_trace_ready(profile)

    def _export(self, profile: Any, path: str) -> None:
        profile.export_chrome_trace(path)
        if self._torch_arguments["with_stack"]:
            _call_lines.add_call_lines(Path(path), profile.profiler)

    def _read_traces(self) -> Iterator[Trace]:
        for path in self._writer.traces if self._writer else ():
            try:
                yield read_trace(path)
            except (OSError, TraceError) as error:  # noqa: PERF203 - the other traces are summarized nevertheless
                rank_zero_warn(f"HPUProfiler: the summary lacks a trace: {error}")

    def _log_report(self) -> None:
        """Log where the traces are, and how to report on them."""
        paths = self._writer.traces if self._writer is not None and self._export_to_chrome else []
        if paths:
            rank_zero_info(f"HPUProfiler: wrote {paths[-1]}. Report: hpu-profiler report {paths[-1].parent}")

    def _log_limits(self) -> None:
        """Log where less was recorded than a user may expect."""
        for session in self._sessions.limited:
            rank_zero_info(
                f"HPUProfiler: a trace of {session.kind} steps ended after {self._max_steps_per_trace} steps; raise "
                "`max_steps_per_trace` to record more."
            )
        main = self._sessions.main
        if self._writer is None and main is not None and main.steps:
            first = main.schedule.first_recorded_step()
            rule = "no step" if first is None else f"from step {first} on"
            rank_zero_warn(
                f"HPUProfiler did not record anything: the run had {main.steps} {main.kind} steps, and the schedule "
                f"records {rule}. Change `schedule`, or train longer."
            )


@functools.cache
def _recording_profilers() -> weakref.WeakSet[HPUProfiler]:
    """Return the profilers with a started session; their traces are written if the interpreter exits."""
    profilers: weakref.WeakSet[HPUProfiler] = weakref.WeakSet()

    def stop_all() -> None:
        for profiler in list(profilers):
            profiler._stop_sessions()  # noqa: SLF001 - of this module

    atexit.register(stop_all)
    return profilers
