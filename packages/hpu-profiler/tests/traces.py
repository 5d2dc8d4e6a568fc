"""Events of traces, as whoever writes them writes them."""

from typing import Any

Event = dict[str, Any]


class Writer:
    """Makes the events of a trace; times are microseconds."""

    HOST = 70
    CARD = 0
    LANES = ("MME", "TPC", "DMA", "NIC", "Synapse/log")

    def operator(  # noqa: PLR0913 - an event of a trace has them all
        self, name: str, begin: float, duration: float, number: int = 0, *, thread: int = 7, shapes: object = None
    ) -> Event:
        """Make an operator of the host."""
        arguments = {"External id": number, **({} if shapes is None else {"Input Dims": shapes})}
        return self._complete("cpu_op", name, begin, duration, self.HOST, thread, arguments)

    def span(self, name: str, begin: float, duration: float, thread: int = 7) -> Event:
        """Make something that the program marked."""
        return self._complete("user_annotation", name, begin, duration, self.HOST, thread, {})

    def step(self, number: int, begin: float, duration: float) -> Event:
        """Make the mark of a step."""
        return self.span(f"ProfilerStep#{number}", begin, duration)

    def work(  # noqa: PLR0913 - an event of a trace has them all
        self,
        name: str,
        begin: float,
        duration: float,
        lane: str = "TPC",
        cat: str = "kernel",
        *,
        number: int = 0,
        correlation: int = 0,
        size: int = 0,
    ) -> Event:
        """Make something that the card did."""
        given = {"External id": number, "correlation": correlation, "bytes": size}
        arguments = {key: value for key, value in given.items() if value}
        return self._complete(cat, name, begin, duration, self.CARD, self.LANES.index(lane), arguments)

    def memory(self, time: float, size: int, thread: int = 7) -> Event:
        """Make a change of the memory in use."""
        place = {"pid": self.HOST, "tid": thread, "ts": time}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **place, "args": {"Bytes": size}}

    def names(self) -> list[Event]:
        """Make the names of the card's lanes."""
        named = [{"ph": "M", "name": "process_name", "pid": self.CARD, "tid": 0, "args": {"name": "/device:HPU:0"}}]
        for index, lane in enumerate(self.LANES):
            named.append({"ph": "M", "name": "thread_name", "pid": self.CARD, "tid": index, "args": {"name": lane}})
        return named

    def _complete(  # noqa: PLR0913, PLR0917 - an event of a trace has them all
        self, cat: str, name: str, begin: float, duration: float, pid: int, tid: int, arguments: Event
    ) -> Event:
        place = {"pid": pid, "tid": tid, "ts": begin, "dur": duration}
        return {"ph": "X", "cat": cat, "name": name, **place, "args": arguments}
