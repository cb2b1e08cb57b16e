"""A web server of this machine that can misbehave in all the ways that real ones do."""

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
    knows_ranges : whether parts of a file can be asked for
    tells_length : whether an answer says how long it is
    shifts_ranges : whether an answer starts elsewhere than asked for
    stalls : where a cut would end a connection, keep it open and send nothing more
    requests : path and Range header of each request
    """

    files: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    knows_ranges: bool = True
    tells_length: bool = True
    shifts_ranges: bool = False
    stalls: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""

    def url(self, path: str) -> str:
        return self.address + path.lstrip("/")


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            site.requests.append((self.path, asked))
            if self.path in site.moved:
                self.send_response(302)
                self.send_header("Location", site.moved[self.path])
                self.end_headers()
                return
            if self.path not in site.files:
                self.send_error(404)
                return
            content, start = site.files[self.path], 0
            if asked and site.knows_ranges:
                start = int(asked.removeprefix("bytes=").rstrip("-")) - (1 if site.shifts_ranges else 0)
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if site.tells_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.cuts.pop(0) if site.cuts else len(content)
            self.wfile.write(content[start:end])
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
