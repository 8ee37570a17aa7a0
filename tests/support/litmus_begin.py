"""Stands before a read-only server of WebDAV and does for litmus what it does before its tests, which would write: its
folder is there. litmus_begin.py ADDRESS: prints where it listens."""

from __future__ import annotations

import http.client
import http.server
import sys

FAR = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.endswith("/litmus/") and self.command in ("DELETE", "MKCOL"):
            self.send_response_only(204 if self.command == "DELETE" else 201)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        far = http.client.HTTPConnection(FAR)
        far.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            far.putheader(name, value if name.lower() != "host" else FAR)
        far.endheaders(body)
        reply = far.getresponse()
        print(self.command, reply.status, file=sys.stderr, flush=True)
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.read())

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self.forward
        raise AttributeError(name)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
