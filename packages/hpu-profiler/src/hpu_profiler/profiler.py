"""The profiler of Lightning's Trainer."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.autograd.profiler import record_function
from torch.profiler import ProfilerAction

from hpu_profiler import _activities, _options, _plan, _run
from hpu_profiler.__about__ import __version__
from hpu_profiler._files import Files
from hpu_profiler._lightning import PyTorchProfiler, RegisterRecordFunction, rank_zero_info, rank_zero_warn
from hpu_profiler._summary import SORT_KEYS, format_table
from hpu_profiler._window import Window
from hpu_profiler.analysis.operators import operator_stats
from hpu_profiler.trace.reader import TraceError, read_trace

if TYPE_CHECKING:
    from hpu_profiler.trace.model import Trace


class HPUProfiler(PyTorchProfiler):
    """Records what host and card do in some steps of a training, writes it as traces and sums it up.

    `Trainer(accelerator=HPUAccelerator(), profiler=HPUProfiler())`, or `profiler="hpu"`. Without a card it records the
    host alone, as PyTorchProfiler does. A step is a whole batch: loading it, forward, backward, optimizer. Outside of
    what it records it costs next to nothing.

    Args:
        dirpath: Folder for traces and summaries; the Trainer's `log_dir` when None.
        filename: Where this is given, the summary of each rank goes to a file of that name, else to Lightning's log.
        group_by_input_shapes: Tell calls with other input shapes apart in the summary. Needs `record_shapes=True`.
        export_to_chrome: Write traces; without, there is only the summary.
        row_limit: Rows of the summary; -1 for all.
        sort_by_key: What the summary is sorted by, a key of `AVAILABLE_SORT_KEYS`; by default time on the card, without
            one time on the host.
        record_module_names: Also record which module is running.
        max_steps_per_trace: Recorded steps after which a trace ends, whatever the schedule says, so that a long run
            does not fill the memory.
        max_traces: Traces that are kept of each kind of step. With 1, recording ends with the first, as it does in
            PyTorchProfiler; with more, the schedule goes on, and a new trace takes the place of the oldest.
        **profiler_kwargs: For `torch.profiler.profile`: `schedule`, `activities`, `record_shapes`, `profile_memory`,
            `with_stack`, `on_trace_ready`, ... Also `export_to_flame_graph=True`, which needs `with_stack=True`, and
            the `metric` of its stacks.

    Raises:
        ValueError: `sort_by_key` is no key, a number is not positive, or flame graphs are asked for without stacks.
        TypeError: An argument is unknown, or the schedule is none.
    """

    AVAILABLE_SORT_KEYS = set(SORT_KEYS)  # noqa: RUF012 - an instance's, says PyTorchProfiler's annotation

    def __init__(  # noqa: PLR0913, PLR0917 - PyTorchProfiler's, and what bounds a recording
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = False,
        *,
        max_steps_per_trace: int = 100,
        max_traces: int = 1,
        **profiler_kwargs: Any,
    ) -> None:
        _options.check(sort_by_key, max_steps_per_trace, max_traces, profiler_kwargs)
        self._window: Window | None = None
        self._files: Files | None = None
        self._summary = ""
        self._about: dict[str, Any] = {}
        self._handled: BaseException | None = None
        # torch's profiler gets a copy: PyTorchProfiler changes what it is given.
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            group_by_input_shapes=group_by_input_shapes,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            record_module_names=record_module_names,
            **profiler_kwargs,
        )
        self._arguments = profiler_kwargs
        self._sorted_by = sort_by_key
        self._max_steps = max_steps_per_trace
        self._max_traces = max_traces
        self._plan = self._new_plan()

    def _init_kineto(self, profiler_kwargs: Any) -> None:
        """Do nothing: PyTorchProfiler would ask torch for names that the bridge may change before they are used."""

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Get ready for a run.

        Args:
            stage: "fit", "validate", "test" or "predict".
            local_rank: The process on its machine; files are named by its number among all.
            log_dir: The Trainer's.

        Raises:
            RuntimeError: HABANA_PROFILE keeps the card's work out of traces.
        """
        trainer = self._trainer
        # Machines that share a disk have processes of the same local rank.
        rank = local_rank if local_rank is None or trainer is None else trainer.global_rank
        super().setup(stage, rank, log_dir)
        self._plan = self._new_plan()
        self._files = None
        self._summary = ""
        on_card = _run.is_on_card(trainer)
        if on_card and "HPU" in _activities.names_of(self._arguments.get("activities"), on_card=True):
            _activities.check_variable(os.environ)
        self._about = {"version": __version__, "on_card": on_card, **_run.describe(trainer)}

    def start(self, action_name: str) -> None:
        """Begin an action, which shows in the trace if one is being recorded.

        Args:
            action_name: Its name.
        """
        meaning = _run.meaning(action_name, self._stage)
        if meaning.is_failure:
            # The run ends here, and nobody will ask for a summary.
            self._close_window()
        if meaning.step is not None:
            # A Trainer may run while its caller handles an error, which is none of the step's.
            self._handled = sys.exc_info()[1]
        if self._window is None:
            if not meaning.opens:
                return
            self._open_first()
        if self._window is not None and action_name not in self._recording_map:
            # By these words TensorBoard's plugin knows an action of Lightning's.
            recording = record_function(f"[pl][profile]{action_name}")
            recording.__enter__()
            self._recording_map[action_name] = recording

    def stop(self, action_name: str) -> None:
        """End an action.

        Args:
            action_name: Its name.
        """
        if self._recording_map and action_name in self._recording_map:
            self._recording_map.pop(action_name).__exit__(None, None, None)
        kind = _run.meaning(action_name, self._stage).step
        if kind is None or (self._window is None and self._plan.is_finished(kind)):
            return
        if _run.is_checking_sanity(self._trainer):
            return
        handled, self._handled = self._handled, None
        if sys.exc_info()[1] is not handled:
            # The step has failed, and it may be that nobody else tells of it.
            self._close_window()
        else:
            self._end_step(kind)

    def summary(self) -> str:
        """Return a table of the operators in the recorded traces: calls, time on host and card, memory.

        What is being recorded ends here. After a run it is that run's; the empty string where nothing was recorded.
        """
        self._close_window()
        traces = self._read()
        if traces:
            rows = operator_stats(traces, group_by_shapes=self._group_by_input_shapes)
            text = format_table(traces, rows, sort_by=self._sorted_by, row_limit=self._row_limit)
            self._summary = self._stats_to_str({"records": text})
        return self._summary

    def describe(self) -> None:
        """Write the summary, to its file or to Lightning's log.

        Raises:
            OSError: The summary or a trace could not be written. Training is over by then, and whole.
        """
        self._close_window(is_complete=True)
        self._warn_of_gaps()
        try:
            super().describe()
        except OSError as error:
            self._ready_files().fail(f"the summary in {self.dirpath}", error)
            rank_zero_info(self.summary())
            self.teardown(stage=self._stage)
        failures = self._files.failures if self._files else []
        if self._files:
            self._files.forget()
        self._files = None
        if failures:
            raise OSError("HPUProfiler: " + " ".join(failures))

    def teardown(self, stage: str | None) -> None:
        """Close what is open.

        Args:
            stage: As in `setup`.
        """
        self._close_window()
        super().teardown(stage=stage)

    def _delete_profilers(self) -> None:
        """End what is being recorded; PyTorchProfiler calls this."""
        self._close_window()

    def __del__(self) -> None:
        # A constructor that raised has left nothing to close.
        if "_plan" in vars(self):
            super().__del__()

    @property
    def _trainer(self) -> Any:
        """The Trainer that this profiler is in, if there is one."""
        try:
            return getattr(self._lightning_module, "_trainer", None)
        except ReferenceError:
            # Lightning gives a weak reference, and the module is gone.
            return None

    def _is_on_card(self) -> bool:
        return bool(self._about["on_card"]) if self._about else _run.is_on_card(None)

    def _new_plan(self) -> _plan.Plan:
        is_default = "schedule" not in self._arguments
        schedule = _plan.default_schedule if is_default else self._arguments["schedule"]
        return _plan.Plan(schedule, is_default=is_default, most_steps=self._max_steps, most_traces=self._max_traces)

    def _open_first(self) -> None:
        """Record from the first step on, if the schedule says so; without a Trainer, from the first action on."""
        kind = _run.KINDS.get(self._stage or "", "")
        if kind and self._plan.done(kind) == 0:
            self._expect(kind)
            self._open(kind, self._plan.action(kind))
        elif not kind:
            self._open(kind, ProfilerAction.RECORD)

    def _end_step(self, kind: str) -> None:
        main = _run.KINDS.get(self._stage or "")
        # A recording that ends must not leave an action behind that the next one would find.
        self._end_actions()
        if self._window is not None and self._window.kind != kind:
            if kind != main:
                # Validation in the midst of recorded training steps shows in their trace, and counts for nothing.
                if self._window.note_other_step() > self._max_steps:
                    self._plan.cut_short(self._window.kind)
                    self._close_window()
                return
            # Training goes on, and with it whatever was to be recorded of validation is over.
            self._close_window(is_complete=True)
        if self._plan.done(kind) == 0 and kind != main:
            self._expect(kind)
        self._plan.end_step(kind)
        if self._window is None:
            self._open(kind, self._plan.action(kind))
        else:
            self._window.end_step()
            if self._window.is_over:
                self._close_window()

    def _expect(self, kind: str) -> None:
        if self._plan.expect(kind, _run.steps_ahead(self._trainer, kind)):
            rank_zero_info(f"HPUProfiler: too few {kind} steps for the default schedule; all of them are recorded.")

    def _open(self, kind: str, first: ProfilerAction) -> None:
        if first is ProfilerAction.NONE:
            return
        about = {**self._about, "stage": kind}
        self._window = Window(
            _options.for_torch(self._arguments, on_card=self._is_on_card()),
            plan=self._plan,
            kind=kind,
            first=first,
            about=about,
            on_ready=functools.partial(self._save, kind),
        )
        self.profiler = self._window.torch
        self._window.open()
        if self._record_module_names and self._lightning_module is not None:
            self._register = RegisterRecordFunction(self._lightning_module)
            self._register.__enter__()
        _profilers().add(self)

    def _close_window(self, *, is_complete: bool = False) -> None:
        if self._window is None:
            return
        self._end_actions()
        window, self._window = self._window, None
        try:
            window.close(is_complete=is_complete)
        finally:
            self.profiler = None
            _profilers().discard(self)
            if self._register is not None:
                self._register.__exit__(None, None, None)
                self._register = None

    def _end_actions(self) -> None:
        for action_name in reversed(list(self._recording_map)):
            self._recording_map.pop(action_name).__exit__(None, None, None)

    def _ready_files(self) -> Files:
        if self._files is None:
            folder = Path(self.dirpath) if self.dirpath is not None and self._export_to_chrome else None
            self._files = Files(folder, self._max_traces)
        return self._files

    def _save(self, kind: str, profiler: Any) -> None:
        """Write the trace of torch's profiler, then do with it what the user wants."""
        files = self._ready_files()
        files.save(self._prepare_filename(action_name=kind or None, extension=""), profiler.export_chrome_trace)
        if self._arguments.get("export_to_flame_graph") and self.dirpath is not None:
            path = Path(self.dirpath) / self._prepare_filename(action_name=kind or None, extension=".stack")
            try:
                profiler.export_stacks(str(path), self._arguments.get("metric", "self_cpu_time_total"))
            except OSError as error:
                files.fail(f"the stacks {path}", error)
        if self._arguments.get("on_trace_ready") is not None:
            self._arguments["on_trace_ready"](profiler)

    def _read(self) -> list[Trace]:
        """Return the traces of this run that can be read."""
        traces = []
        for path in self._files.traces if self._files else ():
            try:
                traces.append(read_trace(path))
            except (OSError, TraceError) as error:  # noqa: PERF203 - one that cannot be read does not hide the others
                rank_zero_warn(f"HPUProfiler: the summary lacks a trace: {error}")
        return traces

    def _warn_of_gaps(self) -> None:
        """Say where less was recorded than one may expect."""
        for kind in sorted(self._plan.cut):
            rank_zero_info(
                f"HPUProfiler: a trace of {kind} steps ended after {self._max_steps} steps; raise "
                "`max_steps_per_trace` for longer ones."
            )
        main = _run.KINDS.get(self._stage or "", "")
        done = self._plan.done(main)
        if self._files is not None or done == 0:
            return
        first = self._plan.first_recorded()
        beginning = "records no step" if first is None else f"begins to record after {first} steps"
        rank_zero_warn(f"HPUProfiler recorded nothing: there were {done} {main} steps, and the schedule {beginning}.")


@functools.cache
def _profilers() -> weakref.WeakSet[HPUProfiler]:
    """Return the profilers that an interpreter which ends closes, so that what they record becomes a trace, too."""
    profilers: weakref.WeakSet[HPUProfiler] = weakref.WeakSet()

    def close_all() -> None:
        for profiler in list(profilers):
            profiler._close_window()  # noqa: SLF001 - of this module

    atexit.register(close_all)
    return profilers
