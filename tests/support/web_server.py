"""A web server on this machine that can break off, stall, redirect and hide lengths."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server holds and how it behaves.

    Attributes
    ----------
    files : content by path
    moved : new path by old path
    cuts : for each of the next connections, after how many bytes of the body it ends
    tells_length : whether a response states its length
    stalls : where a cut would end a connection, keep it open and send nothing more
    requests : path of each request
    """

    files: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    tells_length: bool = True
    stalls: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    address: str = ""

    def url(self, path: str) -> str:
        return self.address + path.lstrip("/")


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            site.requests.append(self.path)
            if self.path in site.moved:
                self.send_response(302)
                self.send_header("Location", site.moved[self.path])
                self.end_headers()
                return
            if self.path not in site.files:
                self.send_error(404)
                return
            content = site.files[self.path]
            self.send_response(200)
            if site.tells_length:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            end = site.cuts.pop(0) if site.cuts else len(content)
            self.wfile.write(content[:end])
            if site.stalls and end < len(content):
                self.wfile.flush()
                site.ended.wait(60)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield site
    finally:
        site.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
