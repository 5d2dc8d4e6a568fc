"""Removal of what identifies a machine or a person from texts of a report."""

import os
import pwd
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Texts of any machine, and what stands for them. A path needs two parts, so that "1/2" and "and/or" stay.
_PATTERNS: Final = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<address>"),
    (re.compile(r"\b[a-z]+://[^\s'\"<>]+"), "<address>"),
    (re.compile(r"(?<![\w.])(?:~|\.{1,2})?/(?:[^\s/'\":,;<>()\[\]]+/)+[^\s/'\":,;<>()\[\]]*"), "<path>"),
    (
        re.compile(r"(?<![\w./<])/(?:home|root|data|mnt|opt|tmp|users|usr|var)\b[^\s'\":,;<>()]*", re.IGNORECASE),
        "<path>",
    ),
    (re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<serial>"),
    # UUIDs and serial numbers of cards, such as 00P1-HL2000A1-15-TNBS77-08-05-08 and AK39012345.
    (re.compile(r"\b[0-9A-Z]{4}-HL[0-9A-Z]+(?:-[0-9A-Z]+)+\b"), "<serial>"),
    (re.compile(r"\bA[A-Z][0-9]{8}\b"), "<serial>"),
    # Not the versions of SynapseAI, such as 1.24.1.482.
    (re.compile(r"\b(?!1\.)(?:\d{1,3}\.){3}\d{1,3}\b(?!\.\d)"), "<address>"),
    (re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{0,4}(?![\w:])", re.IGNORECASE), "<address>"),
)
# They say nothing of a person or a machine.
_COMMON: Final = frozenset({"", "root", "localhost", "user", "ubuntu", "admin", "nobody", "localdomain", "local"})
_NAME_VARIABLES: Final = (
    "HOSTNAME",
    "HOST",
    "USER",
    "LOGNAME",
    "USERNAME",
    "SUDO_USER",
    "SLURM_JOB_USER",
    "SLURMD_NODENAME",
)


class TextMask:
    """Replaces host names, user names, serial numbers, addresses and paths.

    Args:
        names: Names to replace wherever they stand alone, in any case.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        # Longest first: a host name before its first part.
        chosen = sorted({name for name in names if name.lower() not in _COMMON}, key=len, reverse=True)
        text = "|".join(map(re.escape, chosen))
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{text})(?![A-Za-z0-9])", re.IGNORECASE) if chosen else None

    @classmethod
    def of_this_machine(cls, environ: Mapping[str, str] = os.environ) -> "TextMask":
        """Return one that knows the names of this machine and its user."""
        hosts = [socket.gethostname(), os.uname().nodename]
        names = [*hosts, *(part for host in hosts for part in host.split("."))]
        names += [environ.get(name, "") for name in _NAME_VARIABLES]
        try:
            user = pwd.getpwuid(os.getuid())
            names += [user.pw_name, *user.pw_gecos.split(",")]
        except KeyError:
            # A container may run as a user that it does not list.
            pass
        return cls(name.strip() for name in names)

    def text(self, text: str) -> str:
        """Return a text without them."""
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text if self._names is None else self._names.sub("<name>", text)

    def value(self, value: Any) -> Any:
        """Return JSON data whose texts, keys included, are without them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        return value
