"""Local web server that lists the runs in a folder and renders their reports."""

from __future__ import annotations

import html
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report.html import render_html
from hpu_profiler.trace.reader import TraceError, find_traces, read_parts

if TYPE_CHECKING:
    from pathlib import Path

#: Only programs of this machine can connect.
_ADDRESS: Final = "127.0.0.1"
_RUNS: Final = "/runs/"
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>hpu-profiler</title>
<style>body {{ font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
li {{ overflow-wrap: anywhere; }}</style></head>
<body><h1>{title}</h1>{body}</body></html>"""


def find_runs(folder: Path) -> dict[str, Path]:
    """Return the directories with traces in a folder by their relative path, newest first."""
    latest: dict[Path, float] = {}
    for path in [*folder.rglob("*.pt.trace.json"), *folder.rglob("*.pt.trace.json.gz")]:
        latest[path.parent] = max(latest.get(path.parent, 0.0), path.stat().st_mtime)
    ordered = sorted(latest, key=lambda directory: -latest[directory])
    return {directory.relative_to(folder).as_posix(): directory for directory in ordered}


def create_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server for the runs in a folder; `serve_forever` runs it."""

    class Handler(_Handler):
        root = folder

    return ThreadingHTTPServer((_ADDRESS, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    root: Path

    def do_GET(self) -> None:
        # Another web site could resolve its own name to this address.
        if (self.headers.get("Host") or "").partition(":")[0] not in {_ADDRESS, "localhost"}:
            self._send(HTTPStatus.FORBIDDEN, _PAGE.format(title="Forbidden", body=""))
            return
        path = unquote(urlsplit(self.path).path)
        runs = find_runs(self.root)
        if path == "/":
            self._send(HTTPStatus.OK, self._list(runs))
        elif path.startswith(_RUNS) and (path.removeprefix(_RUNS) or ".") in runs:
            self._send_report(runs[path.removeprefix(_RUNS) or "."])
        else:
            self._send(HTTPStatus.NOT_FOUND, _PAGE.format(title="Not found", body='<p><a href="/">All runs</a></p>'))

    def _list(self, runs: dict[str, Path]) -> str:
        items = []
        for name, directory in runs.items():
            traces = find_traces([directory])
            date = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(trace.stat().st_mtime for trace in traces)))
            count = f"{len(traces)} trace{'s' if len(traces) != 1 else ''}"
            # A browser would remove the dot of the folder itself from a path.
            target, title = (_RUNS, "this folder") if name == "." else (_RUNS + quote(name), html.escape(name))
            items.append(f'<li><a href="{target}">{title}</a> {date}, {count}</li>')
        body = f"<ul>{''.join(items)}</ul>" if items else "<p>There are no traces in this folder.</p>"
        return _PAGE.format(title=f"Runs in {html.escape(str(self.root))}", body=body)

    def _send_report(self, directory: Path) -> None:
        try:
            page = render_html(analyze_job(part for path in find_traces([directory]) for part in read_parts(path)))
        except (OSError, TraceError) as error:
            body = f'<p>{html.escape(str(error))}</p><p><a href="/">All runs</a></p>'
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _PAGE.format(title="Error", body=body))
        else:
            self._send(HTTPStatus.OK, page)

    def _send(self, status: HTTPStatus, page: str) -> None:
        content = page.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log nothing; the terminal shows the address only."""
