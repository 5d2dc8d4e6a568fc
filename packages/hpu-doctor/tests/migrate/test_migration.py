"""Tests of the files of a script, and of the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpu_doctor.cli import main


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["migrate", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of a program, of which one line needs a change by hand."""
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    (tmp_path / "model.py").write_text("m.cuda(device)\n")
    (tmp_path / "data" / "images.py").write_text("x.cuda()\n")
    (tmp_path / "notes.txt").write_text("x.cuda()\n")
    return tmp_path


def test_files_of_a_folder_are_searched(folder: Path) -> None:
    result = _run(folder, folder / "train.py")
    report = json.loads(_run("--json", folder).output)

    assert result.exit_code == 1
    assert f"{folder / 'train.py'}:2:5: .cuda()\n  `.to(" in result.output
    assert result.output.endswith("3 to change in 3 files, of which `--fix` changes 2.\n")
    found = {(Path(each["file"]).name, each["line"], each["replacement"]) for each in report["findings"]}
    assert found == {("train.py", 2, 'to("hpu")'), ("model.py", 1, None), ("images.py", 1, 'to("hpu")')}


def test_fix_changes_the_files_and_names_what_is_left(folder: Path) -> None:
    result = _run("--fix", folder)

    assert (result.exit_code, "2 changed, 1 left to change by hand" in result.output) == (1, True)
    assert (folder / "data" / "images.py").read_text() == 'x.to("hpu")\n'
    assert (folder / "model.py").read_text() == "m.cuda(device)\n"
    again = _run("--fix", folder / "train.py")
    assert (again.exit_code, "0 changed, 0 left" in again.output) == (0, True)


def test_a_configuration_is_refused_with_what_to_write(tmp_path: Path) -> None:
    """YAML such as `accelerator: gpu` is also valid Python, in which nothing names CUDA."""
    path = tmp_path / "trainer.yaml"
    path.write_text("accelerator: gpu\n")
    result = _run(path)

    assert result.exit_code != 0
    assert "write `accelerator: hpu`" in result.output


def test_program_without_cuda(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\n")

    assert (_run(path).exit_code, _run(path).output) == (0, "No CUDA in 1 file.\n")


@pytest.mark.parametrize("data", [b"def f(:\n", b"\xff\xfe", b"x = 1\0"], ids=["syntax", "bytes", "null"])
def test_file_that_is_no_python_is_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    result = _run("--fix", path)

    assert (result.exit_code, f"{path}: not a Python file" in result.output) == (2, True)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"# caf\xe9\nx.cuda()\n", None),
        (
            b"# -*- coding: latin-1 -*-\ns = '\xe9'; x.cuda()\n",
            b"# -*- coding: latin-1 -*-\ns = '\xe9'; x.to(\"hpu\")\n",
        ),
        (b"\xef\xbb\xbfx.cuda()\r\ny = 1\r\n", b'\xef\xbb\xbfx.to("hpu")\r\ny = 1\r\n'),
        (b"torch.cuda.is_available()", None),
        (
            b"import torch\r\nx = torch.cuda.is_available()",
            b"import torch\r\nimport hpu_core\r\nx = hpu_core.is_available()",
        ),
    ],
    ids=["undeclared encoding", "latin-1", "mark and line ends", "unknown name", "import with line ends"],
)
def test_fix_keeps_encoding_and_line_ends(data: bytes, expected: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    _run("--fix", path)

    assert path.read_bytes() == (data if expected is None else expected)
