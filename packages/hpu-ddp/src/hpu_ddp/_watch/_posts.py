"""The threads in which ranks watch each other: rank 0 watches all, and all watch rank 0.

A thread, because the main thread may wait in a collective for good: the bridge knows no timeout there. Its calls let
other threads run, like torch's.
"""

import contextlib
import hmac
import selectors
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

from hpu_ddp._watch._line import STRANGER, Line
from hpu_ddp._watch._rules import Identity, Limits, Member, Order, Progress, Verdict, judge, judge_first, order


class Hearer(Protocol):
    """Is told, in the watch's thread, what concerns this rank."""

    def hear_verdict(self, verdict: Verdict) -> None:
        """The training is over. Called once."""

    def hear_stop(self) -> None:
        """Somebody has asked some rank to end the training."""

    def hear_order(self, word: Order) -> None:
        """The ranks that have halted may go on, or end."""


class Post(threading.Thread):
    """Watches other ranks and tells them about this one.

    Args:
        own: This rank, whose `progress` the main thread keeps up to date.
        limits: How long things may take.
        hearer: Whom to tell what comes of it.
    """

    def __init__(self, own: Member, limits: Limits, hearer: Hearer) -> None:
        super().__init__(name="hpu-ddp-watch", daemon=True)
        self._own = own
        self._limits = limits
        self._hearer = hearer
        self._concluded = False
        self._told = Progress()
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)

    def ring(self) -> None:
        """Have the thread look at this rank's progress at once."""
        with contextlib.suppress(OSError):
            self._ringer.send(b"!", socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Take leave of the others and end the thread."""
        self._closing = True
        self.ring()
        # Longer than anything here takes, and no reason to hold up the end of the process.
        self.join(timeout=5)

    def abandon(self) -> None:
        """Close this process's copies of the connections, which a forked process must not keep open for its parent."""
        self._bell.close()
        self._ringer.close()
        self._end()

    def run(self) -> None:
        """Watch until `close` is called."""
        with self._selector:
            while not self._closing:
                ready = self._selector.select(self._limits.interval)
                self._look([key.fileobj for key, _ in ready])
            self._look([])
            self._tell({"left": self._own.progress.at})
            self._end()

    def _look(self, ready: list[Any]) -> None:
        now = time.monotonic()
        if self._bell in ready:
            self._bell.recv(1024)
        # A copy, because the main thread may change it between two looks at it.
        progress = replace(self._own.progress)
        if (progress.at, progress.where) != (self._told.at, self._told.where):
            self._own.since = now
        self._receive([line for line in ready if line is not self._bell], now)
        self._report(progress)
        self._told = progress
        if not self._concluded:
            verdict = self._judge(now)
            if verdict is not None:
                self._end_training(verdict)

    def _end_training(self, verdict: Verdict) -> None:
        self._concluded = True
        self._hearer.hear_verdict(verdict)

    @abstractmethod
    def _receive(self, ready: list[Any], now: float) -> None:
        """Take in what has come over the lines that have something."""

    @abstractmethod
    def _report(self, progress: Progress) -> None:
        """Tell the others how far this rank has come."""

    @abstractmethod
    def _judge(self, now: float) -> Verdict | None:
        """Return why the training is over, None while it is not."""

    @abstractmethod
    def _tell(self, message: Mapping[str, Any]) -> None:
        """Send a message to everybody this rank is connected with."""

    @abstractmethod
    def _end(self) -> None:
        """Close the lines."""


class FirstPost(Post):
    """Rank 0's.

    Args:
        members: All ranks in their order, this one first.
        listener: Where the others connect to.
        token: What they say first, so that nobody else is listened to.
        limits: How long things may take.
        hearer: Whom to tell what comes of it.
    """

    def __init__(
        self, members: list[Member], listener: socket.socket, token: str, limits: Limits, hearer: Hearer
    ) -> None:
        super().__init__(members[0], limits, hearer)
        self._members = members
        self._token = token
        self._lines: dict[Line, Member | None] = {}
        self._order = Order(0, end=False)
        self._listener = listener
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def _receive(self, ready: list[Any], now: float) -> None:
        for source in ready:
            if source is self._listener:
                self._accept()
            else:
                self._take(source, now)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = self._listener.accept()
            line = Line(connection, self._limits.unreachable)
            self._lines[line] = None
            self._selector.register(line, selectors.EVENT_READ)

    def _take(self, line: Line, now: float) -> None:
        for message in line.receive():
            member = self._lines[line]
            if member is not None:
                self._note(member, message, now)
            elif not self._welcome(line, message, now):
                break
        if line.lost is not None:
            self._drop(line)

    def _welcome(self, line: Line, message: Mapping[str, Any], now: float) -> bool:
        """Learn which rank a new line belongs to; whoever does not know the token is sent away."""
        if not hmac.compare_digest(str(message.get("token")).encode(), self._token.encode()):
            line.lost = STRANGER
            return False
        member = self._members[message["rank"]]
        member.since = now
        self._lines[line] = member
        line.send({"welcome": member.identity.rank})
        return True

    def _note(self, member: Member, message: Mapping[str, Any], now: float) -> None:
        if "left" in message:
            member.left = True
        else:
            member.advance(Progress(**message["progress"]), now)

    def _drop(self, line: Line) -> None:
        self._selector.unregister(line)
        member = self._lines.pop(line)
        if member is not None:
            member.lost = line.lost
        line.close()

    def _report(self, progress: Progress) -> None:
        # Every time, so that the others know that this process runs.
        self._tell({"progress": asdict(progress)})
        if any(member.progress.stop for member in self._members):
            self._tell({"stop": True})
            self._hearer.hear_stop()
            # This rank as it was a moment ago, because the main thread may change it while this looks at it.
            word = order([progress, *(member.progress for member in self._members[1:])], self._order)
            if word is not None:
                self._order = word
                self._tell({"order": asdict(word)})
                self._hearer.hear_order(word)

    def _judge(self, now: float) -> Verdict | None:
        return judge(self._members, now, self._limits)

    def _end_training(self, verdict: Verdict) -> None:
        self._tell({"verdict": verdict.as_message()})
        super()._end_training(verdict)

    def _tell(self, message: Mapping[str, Any]) -> None:
        for line, member in self._lines.items():
            if member is not None:
                line.send(message)

    def _end(self) -> None:
        for line in self._lines:
            line.close()
        self._listener.close()


class OtherPost(Post):
    """Any other rank's.

    Args:
        own: This rank.
        first: Where rank 0 runs.
        line: The connection with it.
        limits: How long things may take.
        hearer: Whom to tell what comes of it.
    """

    def __init__(self, own: Member, first: Identity, line: Line, limits: Limits, hearer: Hearer) -> None:
        super().__init__(own, limits, hearer)
        self._first = Member.about_to_train(first)
        self._heard = self._first.since
        self._line = line
        self._verdict: Verdict | None = None
        self._selector.register(line, selectors.EVENT_READ)

    def _receive(self, ready: list[Any], now: float) -> None:
        for _ in ready:
            for message in self._line.receive():
                self._note(message, now)
        if self._line.lost is not None and self._first.lost is None:
            self._selector.unregister(self._line)
            self._first.lost = self._line.lost

    def _note(self, message: Mapping[str, Any], now: float) -> None:
        self._heard = now
        if "progress" in message:
            self._first.advance(Progress(**message["progress"]), now)
        elif "verdict" in message:
            self._verdict = Verdict(**message["verdict"])
        elif "stop" in message:
            self._hearer.hear_stop()
        elif "order" in message:
            self._hearer.hear_order(Order(**message["order"]))
        elif "left" in message:
            self._first.left = True

    def _report(self, progress: Progress) -> None:
        if progress != self._told:
            self._tell({"progress": asdict(progress)})

    def _judge(self, now: float) -> Verdict | None:
        return self._verdict or judge_first(self._first, self._own, self._heard, now, self._limits)

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._line.send(message)

    def _end(self) -> None:
        self._line.close()


def connect(address: str, port: int, rank: int, token: str, limits: Limits) -> Line:
    """Connect with rank 0 and make oneself known.

    Args:
        address: Rank 0's machine.
        port: Where its process listens.
        rank: This rank.
        token: What rank 0 expects to hear.
        limits: How long things may take.

    Raises:
        OSError: There is no answer.
    """
    line = Line(socket.create_connection((address, port), timeout=limits.patience), limits.unreachable)
    line.send({"token": token, "rank": rank})
    deadline = time.monotonic() + limits.patience
    while line.lost is None and time.monotonic() < deadline:
        if line.wait(limits.interval):
            return line
    line.close()
    raise ConnectionError(f"rank 0 {line.lost}" if line.lost else "rank 0 does not answer")
