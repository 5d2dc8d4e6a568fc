"""Tests of the removal of names, addresses, paths and serial numbers."""

from __future__ import annotations

import json
import socket

import pytest

from hpu_doctor.verify.privacy import TextMask


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error in /home/ada/secret-project/train.py, line 3", "error in <path>, line 3"),
        ("File '/opt/x/y.py'", "File '<path>'"),
        ("~/data/file and ./here/file", "<path> and <path>"),
        ("/usr", "<path>"),
        ("connect to 10.1.2.3 failed", "connect to <address> failed"),
        ("connect to tcp://node7:29500 failed", "connect to <address> failed"),
        ("fe80:0:0:0:1:2:3:4 is up", "<address> is up"),
        ("mac 0a:1b:2c:3d:4e:5f", "mac <address>"),
        ("mail ada@example.org", "mail <address>"),
        ("uuid 00P1-HL2000A1-15-TNBS77-08-05-08", "uuid <serial>"),
        ("serial AK39012345", "serial <serial>"),
        ("01234567-89ab-cdef-0123-456789abcdef", "<serial>"),
        ("rank 1/2 and/or 3", "rank 1/2 and/or 3"),
        ("torch 2.11.0, bridge 1.24.1.482", "torch 2.11.0, bridge 1.24.1.482"),
        ("device 0000:43:00.0", "device 0000:43:00.0"),
    ],
)
def test_patterns(text: str, expected: str) -> None:
    assert TextMask().text(text) == expected


@pytest.mark.parametrize("text", ["host Babbage3 failed", "[babbage3]", "babbage3.cluster.example", "user_babbage3"])
def test_names_stand_alone_in_any_case(text: str) -> None:
    assert "babbage" not in TextMask(["babbage3"]).text(text).lower()


def test_name_within_a_word_stays() -> None:
    assert TextMask(["ada"]).text("adaptive") == "adaptive"


def test_common_names_stay() -> None:
    assert TextMask(["root", "localhost"]).text("root on localhost") == "root on localhost"


def test_values_of_all_kinds() -> None:
    value = {"ada": ["ada", 1, None, {"x": "/a/b/c"}]}

    assert TextMask(["ada"]).value(value) == {"<name>": ["<name>", 1, None, {"x": "<path>"}]}


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "enigma-04.bletchley.example")

    text = TextMask.of_this_machine({"USER": "turing", "SLURM_JOB_USER": "clarke"}).text(
        json.dumps(["enigma-04", "bletchley", "turing", "clarke", "enigma-04.bletchley.example"])
    )

    assert not {name for name in ("enigma", "bletchley", "turing", "clarke") if name in text}
