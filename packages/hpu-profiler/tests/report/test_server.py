"""Local web server."""

import http.client
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpu_profiler.report.server import create_server, find_runs

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.fixture
def folder(write_trace: Callable[..., Path], builder: TraceBuilder, tmp_path: Path) -> Path:
    """Folder with the run "a run/version_0"."""
    trace = write_trace(builder.step(0, 0, 9), builder.operator("aten::mm", 1, 2))
    run = tmp_path / "runs" / "a run" / "version_0"
    run.mkdir(parents=True)
    trace.rename(run / trace.name)
    return tmp_path / "runs"


@pytest.fixture
def get(folder: Path) -> Iterator[Callable[..., tuple[int, str]]]:
    """Return a function that returns the status and the text of a page."""
    server = create_server(folder, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def get_page(path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        status, text = response.status, response.read().decode()
        connection.close()
        return status, text

    yield get_page
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_this_machine_can_connect(folder: Path) -> None:
    with create_server(folder, 0) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_runs_are_listed(get: Callable[..., tuple[int, str]]) -> None:
    status, text = get("/")

    assert status == 200
    assert '<a href="/runs/a%20run/version_0">a run/version_0</a>' in text
    assert "1 trace<" in text


def test_traces_in_the_folder_itself_are_a_run(
    folder: Path, builder: TraceBuilder, write_trace: Callable[..., Path], get: Callable[..., tuple[int, str]]
) -> None:
    """A browser would remove the dot from the path "/runs/."."""
    trace = write_trace(builder.step(0, 0, 9), builder.operator("aten::add", 1, 2))
    trace.rename(folder / trace.name)

    assert '<a href="/runs/">this folder</a>' in get("/")[1]
    status, text = get("/runs/")
    assert status == 200
    assert "aten::add" in text


def test_report_of_a_run_is_rendered(get: Callable[..., tuple[int, str]]) -> None:
    status, text = get("/runs/a%20run/version_0")

    assert status == 200
    assert "aten::mm" in text


@pytest.mark.parametrize("path", ["/runs/absent", "/runs/../..", "/runs/..%2f..", "/etc/passwd"])
def test_other_paths_are_not_found(path: str, get: Callable[..., tuple[int, str]]) -> None:
    assert get(path)[0] == 404


def test_unreadable_trace_is_an_error_page(folder: Path, get: Callable[..., tuple[int, str]]) -> None:
    (folder / "b.pt.trace.json").write_text("{")

    status, text = get("/runs/")

    assert status == 500
    assert "b.pt.trace.json is not valid JSON" in text


def test_request_of_another_site_is_forbidden(get: Callable[..., tuple[int, str]]) -> None:
    """A web site could resolve its own name to this machine."""
    assert get("/", Host="example.com")[0] == 403


def test_runs_in_an_empty_folder(tmp_path: Path) -> None:
    assert find_runs(tmp_path) == {}
