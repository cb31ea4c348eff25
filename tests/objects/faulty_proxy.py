"""A proxy before an S3 server that loses requests and answers, and says that it is busy, as a seed wants."""

import http.client
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["faulty_proxy"]

_BUSY = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>"
_HOP_BY_HOP = {"connection", "content-length", "transfer-encoding"}
_FAULTS = ("request", "answer", "busy")


@contextmanager
def faulty_proxy(
    port: int, seed: int = 0, rate: float = 0.0, on_request: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """Run a proxy on a free port of loopback; yield that port.

    Args:
        port: of the server.
        rate: share of the requests that go wrong: one third is lost, of one third the answer is, one third is refused.
        on_request: called for each.
    """
    chance, lock = random.Random(seed), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

        def pass_on(self) -> None:
            """Handle a request."""
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            with lock:
                on_request()
                fault = chance.choice(_FAULTS) if chance.random() < rate else ""
            if fault == "request":
                self.close_connection = True
                return
            if fault == "busy":
                self._answer(503, [("content-type", "application/xml")], _BUSY)
                return
            status, headers, answer = self._ask(body)
            if fault == "answer":
                self.close_connection = True
                return
            self._answer(status, headers, answer)

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            """Ask the server; the name of the host stays, since it is signed."""
            server = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    server.putheader(name, value)
                server.endheaders(body)
                found = server.getresponse()
                headers = [(name, value) for name, value in found.getheaders() if name.lower() not in _HOP_BY_HOP]
                if self.command == "HEAD":
                    headers.append(("content-length", found.getheader("content-length") or "0"))
                return found.status, headers, found.read()
            finally:
                server.close()

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD" and status != http.client.NO_CONTENT:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.pass_on)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: object) -> None:
            """Say nothing of clients that were killed."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
