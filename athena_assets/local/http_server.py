"""The HTTP server: werkzeug's threaded server with keep-alive, bound to the loopback address only.

Werkzeug's own handler closes every connection, because it cannot know whether an application has read the body. This
one reads the whole body before the application runs, so connections are kept, and an answer is one `send`.
"""

from __future__ import annotations

import io
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

from athena_assets.local.s3_clock import CLOCK

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; with `cut`, the connection is closed after so many bytes of its body."""

    status: int
    headers: Headers
    body: bytes
    cut: int | None = None


class ConnectionDropped(Exception):
    """Raised by the application to close the connection without an answer."""


Application = Callable[[dict[str, Any], bytes], Reply]


class Handler(MotoRequestHandler):
    """Reads a request completely, asks the server's application for a `Reply`, writes it in one piece."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LoopbackServer

    def run_wsgi(self) -> None:
        """Called by werkzeug for every method."""
        if self.headers.get("Expect", "").strip().lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        environ = self.make_environ()
        if environ.get("wsgi.input_terminated"):
            body = environ["wsgi.input"].read()
            environ["CONTENT_LENGTH"] = str(len(body))
            environ.pop("HTTP_TRANSFER_ENCODING", None)
        else:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            body = self.rfile.read(length) if length else b""
            if len(body) != length:
                self.close_connection = True  # the client went away in the middle of its request: nothing is applied
                return
        environ["wsgi.input"] = io.BytesIO(body)
        environ["wsgi.input_terminated"] = True
        try:
            reply = self.server.application(environ, body)
        except ConnectionDropped:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        except Exception:  # noqa: BLE001 - a bug of ours or moto's: said in the log and to the caller
            traceback.print_exc(file=sys.stderr)
            reply = Reply(500, [("Content-Type", "text/plain")], b"embedded AWS: internal error, see its log")
        self.close_connection = self.close_connection or reply.cut is not None
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        phrase = HTTPStatus(reply.status).phrase if reply.status in HTTPStatus._value2member_map_ else "Unknown"
        lines = [f"HTTP/1.1 {reply.status} {phrase}"]
        bodiless = self.command == "HEAD" or reply.status in (204, 304)
        seen: set[str] = set()
        for name, value in reply.headers:
            lowered = name.lower()
            if lowered in {"connection", "transfer-encoding", "date", "server"}:
                continue
            seen.add(lowered)
            lines.append(f"{name}: {value}")
        if "content-length" not in seen and reply.status not in (204, 304):
            lines.append(f"Content-Length: {len(reply.body)}")
        lines.append(f"Date: {formatdate(CLOCK.now(), usegmt=True)}")
        lines.append("Server: embedded-aws")
        lines.append(f"Connection: {'close' if self.close_connection else 'keep-alive'}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.wfile.write(head if bodiless else head + reply.body[: reply.cut])

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Quiet: the request log is read over HTTP."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        """Quiet, but for errors."""
        if type == "error":
            sys.stderr.write((message % args if args else message) + "\n")


class LoopbackServer(ThreadedWSGIServer):
    """One thread a connection; refuses any address but 127.0.0.1."""

    request_queue_size = 1024

    def __init__(self, host: str, port: int, application: Application) -> None:
        if host != "127.0.0.1":
            raise ValueError(f"the embedded AWS binds to 127.0.0.1 only, not to {host!r}: it checks no signature")
        self.application = application
        super().__init__(host, port, _unused_wsgi_app, handler=Handler)


def _unused_wsgi_app(environ: Any, start_response: Any) -> Any:
    raise AssertionError("the handler calls the application itself")
