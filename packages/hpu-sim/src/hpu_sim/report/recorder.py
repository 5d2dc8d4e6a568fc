"""Listens to the device and counts what it hears by line and by step."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

from hpu_sim.report.model import Compilation
from hpu_sim.report.model_state import ModelStates
from hpu_sim.report.places import Places, frame_of_backward
from hpu_sim.report.series import StepSums
from hpu_sim.report.spelling import dtype_of, operator_of_backward, spell
from hpu_sim.report.stepping import Stepping
from hpu_sim.report.tally import Collectives, Tallies, Tally

if TYPE_CHECKING:
    from types import FrameType

    from hpu_sim.report.model import CollectiveUse, Kind, ModelState, Site, Steps

#: Compilations that are kept in full; further ones are only counted by line.
MAX_COMPILATIONS: Final = 200


class Recorder:
    """Takes the device's events and the optimizers' steps of one process.

    Attributes:
        problem: What stopped it, or None.
        compilations: Graphs compiled, the first :data:`MAX_COMPILATIONS` of them.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self.compilations: list[Compilation] = []
        # Reentrant: a signal handler that runs in the middle may use the device, too.
        self._lock = threading.RLock()
        self._stepping = Stepping()
        self._sums = StepSums()
        self._tallies = Tallies(Places())
        self._collectives = Collectives()
        self._models = ModelStates()
        self._difference: tuple[Tally, str] | None = None

    def listen(self, kind: str, op: str, detail: str, size: int, frame: FrameType | None) -> None:
        """Take an event of ``csrc/diagnostics.h``; it never raises, for the program is not to notice.

        Args:
            kind: Its kind.
            op: The operator, or the collective.
            detail: Shapes and dtypes, or a dtype, or the reason of a refusal.
            size: Its bytes.
            frame: What Python is running in the thread of the event; None where it runs none.
        """
        if self.problem is not None:
            return
        try:
            with self._lock:
                self._take(kind, op, detail, size, frame)
        except Exception as error:  # noqa: BLE001 - a fault in here must not become one of the program
            self.problem = f"{type(error).__name__}: {error}"

    def optimizer_stepped(self, optimizer: Any, frame: FrameType | None) -> None:
        """Note that an optimizer has made a step; it never raises.

        Args:
            optimizer: The optimizer.
            frame: What Python is running.
        """
        if self.problem is not None:
            return
        try:
            with self._lock:
                if self._stepping.optimizer_stepped(optimizer, frame):
                    self._sums.end_step()
                self._models.look_at(optimizer)
        except Exception as error:  # noqa: BLE001 - as above
            self.problem = f"{type(error).__name__}: {error}"

    def _take(self, kind: str, op: str, detail: str, size: int, frame: FrameType | None) -> None:
        backward = None
        if frame is None:
            # The engine of autograd runs in a thread without Python; the main thread waits for it.
            frame, backward = frame_of_backward(), _backward_operator()
        if self._stepping.observe(frame):
            self._sums.end_step()
        if kind == "host_sync":
            self._sums.host_syncs += 1
            self._find("host_sync", op, "", frame, backward).add(self._stepping.number, 0, "")
        elif kind in {"h2d", "d2h"}:
            self._take_copy("h2d" if kind == "h2d" else "d2h", detail, size, frame, backward)
        elif kind == "collective":
            self._collectives.add(op, size)
            tally = self._find("collective", op, dtype_of(detail), frame, backward)
            tally.add(self._stepping.number, size, detail)
        elif kind == "divergence":
            variant = "shapes" if " -> " in detail else "operators"
            self._difference = (self._find("compilation", op, variant, frame, backward), detail)
        elif kind in {"compilation", "recompilation"}:
            self._take_compilation(kind == "recompilation", frame, backward)
        elif kind == "dtype":
            self._find("dtype", op, detail, frame, backward).add(self._stepping.number, 0, "")
        elif kind == "refused":
            self._find("refused", op, "", frame, backward).add(self._stepping.number, 0, detail)

    def _find(self, kind: Kind, what: str, variant: str, frame: FrameType | None, backward: str | None) -> Tally:
        return self._tallies.find(kind, what, variant, frame, backward)

    def _take_copy(
        self, kind: Literal["h2d", "d2h"], detail: str, size: int, frame: FrameType | None, backward: str | None
    ) -> None:
        tensor, _, memory = detail.rpartition(", ")
        self._sums.copied_bytes += size
        self._find(kind, "copy", memory, frame, backward).add(self._stepping.number, size, tensor)
        # The device tells of float64 itself, but not of a dtype that only some cards store otherwise.
        if kind == "h2d" and dtype_of(tensor) == "int64":
            self._find("dtype", "copy to the card", "int64", frame, backward).add(self._stepping.number, 0, "")

    def _take_compilation(self, recompiled: bool, frame: FrameType | None, backward: str | None) -> None:
        self._sums.compilations += 1
        tally, detail = self._difference or (self._find("compilation", "", "end", frame, backward), "")
        self._difference = None
        tally.add(self._stepping.number, 0, detail)
        if len(self.compilations) < MAX_COMPILATIONS:
            reason: Any = tally.variant
            before, _, after = spell(detail).rpartition(" -> ")
            place = None if tally.place is None else tally.stack[tally.place]
            self.compilations.append(
                Compilation(self._stepping.number, recompiled, reason, tally.what, before, after, place)
            )

    def steps(self) -> Steps:
        """Return the training so far."""
        with self._lock:
            finished = self._stepping.finished
            sums = copy.deepcopy(self._sums)
            if finished == self._stepping.number:
                sums.end_step(is_last=True)
            return sums.steps(finished)

    def sites(self) -> tuple[Site, ...]:
        """Return where what happened, the most frequent first."""
        with self._lock:
            return self._tallies.sites()

    def collectives(self) -> tuple[CollectiveUse, ...]:
        """Return the collectives by name."""
        with self._lock:
            return self._collectives.uses()

    def model(self) -> ModelState | None:
        """Return what the optimizers hold; None where that is not known."""
        with self._lock:
            return self._models.total()

    @property
    def unplaced(self) -> int:
        """Events that belong to no site because there were too many sites."""
        return self._tallies.unplaced


def _backward_operator() -> str:
    """Return the operator whose backward pass this thread runs; the empty text where torch does not tell."""
    import torch

    # Not in torch before 2.1.
    current_node = getattr(torch._C, "_current_autograd_node", None)  # noqa: SLF001 - torch has no public way
    node = current_node() if current_node is not None else None
    return operator_of_backward(node.name()) if node is not None else ""
