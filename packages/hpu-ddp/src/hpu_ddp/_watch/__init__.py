"""Ending a training of which a rank has died, failed, left or does not move: everywhere, soon, and with its name.

HCCL has no timeout of its own that the bridge honours, so a collective that one rank never enters holds all others for
good. Here each rank tells the others how far it has come, and rank 0 judges. A rank learns the verdict at its next
meeting point, as an exception; one that is held in a collective is ended by the system after a moment.
"""

import atexit
import contextlib
import faulthandler
import multiprocessing.util
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from hpu_ddp._watch._posts import FirstPost, OtherPost, Post, connect
from hpu_ddp._watch._rules import Identity, Limits, Member, Order, Progress, Verdict
from hpu_ddp.errors import RankFailedError

__all__ = ["Identity", "Watch"]

_STDERR = 2


class Watch:
    """This rank's part in the watch. Nobody is watched until `stand_guard` or `report_to` is called.

    Args:
        own: Where this rank runs.
        timeout: After how many seconds a training that cannot go on has ended everywhere.
    """

    def __init__(self, own: Identity, timeout: float) -> None:
        self._progress = Progress()
        self._own = Member(own, self._progress, time.monotonic())
        self._timeout = timeout
        self._limits = Limits.within(timeout)
        self._post: Post | None = None
        self._verdict: Verdict | None = None
        self._decided = threading.Event()
        self._stopping = False
        self._order = Order(0, end=False)
        self._word = threading.Condition()

    def stand_guard(self, others: Sequence[Identity], listener: socket.socket, token: str) -> None:
        """Watch all other ranks, as rank 0.

        Args:
            others: All ranks but this one, in their order.
            listener: Where they connect to.
            token: What they say first.
        """
        members = [self._own, *(Member.about_to_train(identity) for identity in others)]
        self._start(FirstPost(members, listener, token, self._limits, self))

    def report_to(self, first: Identity, address: str, port: int, token: str) -> None:
        """Watch rank 0 and be watched by it.

        Args:
            first: Where rank 0 runs.
            address: Its machine.
            port: Where it listens.
            token: What it expects to hear.

        Raises:
            RankFailedError: It cannot be reached.
        """
        rank = self._own.identity.rank
        try:
            line = connect(address, port, rank, token, self._limits)
        except OSError as error:
            raise RankFailedError(
                f"rank {rank} cannot reach {first} at {address}, port {port}: {error}. The ranks of a training watch "
                "each other over TCP ports that the system chooses: open them between the machines"
            ) from error
        self._start(OtherPost(self._own, first, line, self._limits, self))

    def begin(self) -> None:
        """Note that this rank is in a training from now on.

        Raises:
            RankFailedError: An earlier failure has parted the ranks.
        """
        self.check()
        self._progress.failed = None
        self._progress.active = True
        if self._post is not None:
            self._post.ring()

    def end(self) -> None:
        """Note that this rank's training is over."""
        self._progress.active = False
        if self._verdict is not None:
            # The program has the word again; `_take_leave` sees to what may hold up its end.
            faulthandler.cancel_dump_traceback_later()

    def check(self) -> None:
        """Do nothing while the training can go on.

        Raises:
            RankFailedError: It cannot.
        """
        self._raise_verdict(None)

    @contextlib.contextmanager
    def meeting(self, where: str) -> Iterator[None]:
        """Count a point at which all ranks meet, and note that this one is there.

        Args:
            where: What the errors of other ranks call it.

        Raises:
            RankFailedError: The training cannot go on, which may be why the body failed.
        """
        self.check()
        outer = self._progress.where
        self._progress.at += 1
        self._progress.where = where
        try:
            yield
        except BaseException as error:
            if not isinstance(error, RankFailedError) and self._awaits_verdict(error):
                self._leave_time()
                self._raise_verdict(error)
            self._progress.at -= 1
            raise
        finally:
            self._progress.where = outer

    @property
    def stopping(self) -> bool:
        """Whether this rank has been asked to end its training."""
        return self._progress.stop

    def stop(self) -> None:
        """Ask all ranks to end their training before the same batch. May be called by a signal's handler."""
        self._progress.stop = True
        if self._post is not None:
            self._post.ring()

    def pause(self) -> bool:
        """Count a training batch that is about to begin, and tell whether the training ends before it.

        Returns at once unless some rank has been asked to stop.

        Raises:
            RankFailedError: The training cannot go on.
        """
        progress = self._progress
        if not self._stopping or self._post is None:
            progress.batch += 1
            return False
        progress.halted = progress.batch + 1
        progress.batch += 1
        self._post.ring()
        with self._word:
            while self._order.batch < progress.batch:
                self.check()
                self._word.wait(self._limits.interval)
            word = self._order
        progress.halted = 0
        return word.end and word.batch == progress.batch

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank cannot go on, unless it is because of another rank.

        Args:
            error: Why it cannot.
        """
        # Where all ranks end because they were asked to, none has failed.
        if self._post is not None and not self._order.end:
            self._fail(self._post, error)

    def _awaits_verdict(self, error: BaseException) -> bool:
        """Tell whether there is a verdict, which may be why this rank fails, too.

        A collective fails at once where a connection breaks, and a moment later the watch knows whose it was.
        """
        might_be_one = self._post is not None and isinstance(error, RuntimeError)
        return self._decided.wait(self._limits.moment if might_be_one else 0)

    def _fail(self, post: Post, error: BaseException) -> None:
        own = not isinstance(error, RankFailedError) and not self._awaits_verdict(error)
        if self._progress.active and own:
            self._progress.failed = f"{type(error).__name__}: {error}".rstrip(": ")
            post.ring()

    def _raise_verdict(self, cause: BaseException | None) -> None:
        if self._verdict is not None:
            raise RankFailedError(self._verdict.text) from cause

    def _start(self, post: Post) -> None:
        self._post = post
        os.register_at_fork(after_in_child=post.abandon)
        post.start()
        # Before what the bridge does at the end of a program, and in a process that multiprocessing has started, whose
        # end is another.
        atexit.register(self._take_leave)
        multiprocessing.util.Finalize(None, self._take_leave, exitpriority=10)

    def hear_stop(self) -> None:
        """Halt before the next batch. Runs in the watch's thread, as what follows."""
        self._stopping = True

    def hear_order(self, word: Order) -> None:
        """Go on, or end, if this rank has halted before the batch that the order is for."""
        with self._word:
            self._order = word
            self._word.notify_all()

    def hear_verdict(self, verdict: Verdict) -> None:
        """Have this process end, because the training is over."""
        own = self._own.identity
        if self._progress.active:
            if verdict.victim is not None and verdict.rank == own.rank:
                _give_up(verdict)
            _put_down(verdict, own)
        self._verdict = verdict
        if self._progress.active and verdict.rank != own.rank:
            sys.stderr.write(f"hpu-ddp: rank {own.rank} ends, because {verdict.text}\n")
            self._arm(self._limits.grace)
        self._decided.set()

    def _arm(self, seconds: float) -> None:
        """Have this process end after a time: a thread of the system's, which needs no lock of Python's.

        It writes where each thread is and ends the process with exit code 1.
        """
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)

    def _leave_time(self) -> None:
        """Give the main thread, which nothing holds any more, what is left of the user's timeout."""
        if self._verdict is not None and self._progress.active:
            self._arm(max(self._limits.grace, self._timeout - self._verdict.lasted))

    def _take_leave(self) -> None:
        """Tell the others that this process ends."""
        post, self._post = self._post, None
        if post is None or os.getpid() != self._own.identity.pid:
            return
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException):
            # The program ends with it, and outside of the Trainer nobody else has told the others.
            self._fail(post, error)
        post.close()
        if self._verdict is not None:
            # When a program ends, the bridge takes its process groups apart, and waits for the dead in doing so.
            self._arm(self._limits.grace)


def _give_up(verdict: Verdict) -> None:
    """End this process, which the others wait for no longer, and show where it is."""
    sys.stderr.write(f"hpu-ddp: {verdict.text}; so it ends here:\n")
    sys.stderr.flush()
    faulthandler.dump_traceback(_STDERR)
    os._exit(1)


def _put_down(verdict: Verdict, own: Identity) -> None:
    """End a process of this machine that does not end by itself: it is stopped, or holds Python's lock."""
    if verdict.victim is None or verdict.machine != own.machine:
        return
    # The descriptor stands for this very process, though another one may get its number.
    with contextlib.suppress(OSError):
        process = os.pidfd_open(verdict.victim)
        try:
            if not select.select([process], [], [], 1.0)[0]:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
