"""The ranks of a training find each other, before there is a process group, and learn who does not come."""

import itertools
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hpu_ddp._watch import Identity, Watch
from hpu_ddp.errors import RankFailedError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
else:
    # Public here, but not for type checkers.
    from torch.distributed import PrefixStore, Store, TCPStore

# For how long rank 0 waits for those that are there to have heard that somebody is missing.
_FAREWELL = timedelta(seconds=5)

_COMPLETE = "complete"

_meetings = itertools.count()


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where and as what this process meets the others.

    Attributes:
        address: The machine of rank 0.
        port: The port at which it waits.
        rank: This process, from 0.
        world_size: How many there are.
        timeout: For how long they wait for each other.
    """

    address: str
    port: int
    rank: int
    world_size: int
    timeout: timedelta

    @property
    def place(self) -> str:
        """Address and port, for people."""
        return f"{self.address}, port {self.port}"


@dataclass(frozen=True, slots=True)
class Meeting:
    """What comes of it when all ranks have met.

    Attributes:
        store: Through which they make a process group.
        watch: By which they watch each other; None where there is one rank only.
    """

    store: Store
    watch: Watch | None


def meet(rendezvous: Rendezvous) -> Meeting:
    """Wait for all ranks, and have them watch each other from then on.

    Args:
        rendezvous: Where, and as what.

    Raises:
        RankFailedError: A rank has not come in time; the text names it.
        ValueError: Two processes claim the same rank, or they do not agree about how many there are.
    """
    store = _open_store(rendezvous)
    if rendezvous.world_size == 1:
        return Meeting(store, None)
    own = identify(rendezvous.rank)
    watch = Watch(own, rendezvous.timeout.total_seconds())
    # torchrun may start all processes again and keep the store, and a process may destroy its group and make another.
    attempt = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_meetings)}"
    calls: Store = PrefixStore(f"hpu_ddp/{attempt}", store)
    try:
        _answer(calls, rendezvous, own)
        if rendezvous.rank == 0:
            _stand_guard(calls, rendezvous, watch)
        else:
            _report(calls, rendezvous, watch)
    except RuntimeError as error:
        if isinstance(error, RankFailedError):
            raise
        raise RankFailedError(
            f"rank 0 has gone from {rendezvous.place}, before all ranks were there: its own error says why"
        ) from error
    return Meeting(store, watch)


def identify(rank: int) -> Identity:
    """Return where this process runs.

    Args:
        rank: Which it is among all ranks.
    """
    host = socket.gethostname()
    return Identity(rank, host, os.getpid(), _machine(host))


def _open_store(rendezvous: Rendezvous) -> Store:
    """Open the store of rank 0, or of torchrun's agent where there is one."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host = rendezvous.rank == 0 and not agent
    try:
        return TCPStore(
            rendezvous.address,
            rendezvous.port,
            rendezvous.world_size,
            is_master=host,
            timeout=rendezvous.timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
    # A TimeoutError is torch 2.0's.
    except (RuntimeError, TimeoutError) as error:
        if host:
            raise RuntimeError(
                f"rank 0 cannot wait for the others at {rendezvous.place}: {_first_line(error)} MASTER_PORT must be "
                "free on the machine of rank 0, and MASTER_ADDR must be this machine"
            ) from error
        raise RankFailedError(
            f"rank {rendezvous.rank} has not found rank 0 at {rendezvous.place} within "
            f"{rendezvous.timeout.total_seconds():g} s: {_first_line(error)} See that rank 0 runs there, and that "
            "MASTER_ADDR and MASTER_PORT are the same on every machine"
        ) from error


def _answer(calls: Store, rendezvous: Rendezvous, own: Identity) -> None:
    """Say that this rank is here.

    Raises:
        ValueError: Another process has said the same, or counts other ranks.
    """
    count = rendezvous.world_size
    # The first to come says how many there are. `compare_set` would do, but crashes the interpreter on torch 2.0.
    if calls.add("comers", 1) == 1:
        calls.set("world_size", str(count))
    agreed = int(calls.get("world_size"))
    if agreed != count:
        _object(
            calls,
            f"{own} counts {count} processes and another rank {agreed}: `devices` and `num_nodes` must be the same on "
            "every machine",
        )
    if calls.add(f"{_key(own.rank)}/claims", 1) > 1:
        _object(calls, f"{own} is not the only rank {own.rank}: see that NODE_RANK differs from machine to machine")
    calls.set(_key(own.rank), json.dumps(asdict(own)))
    if calls.add("arrived", 1) == count:
        calls.set("all", "")


def _object(calls: Store, text: str) -> NoReturn:
    """Have every rank end, because this one cannot be one of them."""
    calls.set("outcome", text)
    calls.add("objections", 1)
    # Rank 0 looks at the outcome once all are there; they never will be.
    calls.set("all", "")
    raise ValueError(text)


def _stand_guard(calls: Store, rendezvous: Rendezvous, watch: Watch) -> None:
    """Wait for the others as rank 0, tell them whether all have come, and guard them from then on."""
    failure = _await(calls, rendezvous)
    if failure is not None:
        calls.set("outcome", str(failure))
        _await_hearing(calls, rendezvous.world_size)
        raise failure
    listener, token = _listen(), secrets.token_hex(16)
    others = [_parse(calls.get(_key(rank))) for rank in range(1, rendezvous.world_size)]
    watch.stand_guard(others, listener, token)
    calls.set("guard", json.dumps({"port": listener.getsockname()[1], "token": token}))
    calls.set("outcome", _COMPLETE)


def _report(calls: Store, rendezvous: Rendezvous, watch: Watch) -> None:
    """Wait for rank 0's word that all have come, and report to it from then on."""
    # Rank 0 may have come last, and then waits as long.
    patience = 2 * rendezvous.timeout + _FAREWELL
    calls.wait(["outcome"], patience)
    outcome = calls.get("outcome").decode()
    if outcome != _COMPLETE:
        calls.set(f"{_key(rendezvous.rank)}/heard", "")
        raise RankFailedError(outcome)
    first = _parse(calls.get(_key(0)))
    guard = json.loads(calls.get("guard"))
    watch.report_to(first, rendezvous.address, guard["port"], guard["token"])


def _await(calls: Store, rendezvous: Rendezvous) -> Exception | None:
    """Wait until all ranks have answered; return what keeps them from it."""
    try:
        calls.wait(["all"], rendezvous.timeout)
    except RuntimeError:
        # The store's own error does not say who.
        missing = [rank for rank in range(1, rendezvous.world_size) if not _has_come(calls, rank)]
        # Where none is missing, the last one has come at the last moment and was about to say so.
        if missing:
            return RankFailedError(
                f"{_ranks(missing)} did not come to {rendezvous.place} within {rendezvous.timeout.total_seconds():g} "
                "s: see whether it runs, and its error if it does not"
            )
    return ValueError(calls.get("outcome").decode()) if calls.add("objections", 0) else None


def _has_come(calls: Store, rank: int) -> bool:
    """Tell whether a rank has said that it is here, by counting: torch 2.0's store cannot be asked for a key."""
    return calls.add(f"{_key(rank)}/claims", 0) > 0


def _await_hearing(calls: Store, world_size: int) -> None:
    """Keep the store open until those that are there have heard the outcome."""
    present = [rank for rank in range(1, world_size) if _has_come(calls, rank)]
    if present:
        try:
            calls.wait([f"{_key(rank)}/heard" for rank in present], _FAREWELL)
        except RuntimeError:
            # One of them has ended meanwhile, which is no news.
            return


def _listen() -> socket.socket:
    # All addresses of this machine, as the store does, because the others may know it by any.
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _machine(host: str) -> str:
    """Return what is the same for two processes that see each other by the same process ids, and for no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return host


def _parse(answer: bytes) -> Identity:
    return Identity(**json.loads(answer))


def _key(rank: int) -> str:
    return f"rank/{rank}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _first_line(error: Exception) -> str:
    """Return what torch says first; the rest is a trace of C++."""
    return f"{str(error).splitlines()[0].rstrip('.')}."
