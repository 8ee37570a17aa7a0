"""A server of S3 for the stress test: of each object it has an honest copy, and one that it loses or lies about."""

import http.server
import random
import threading
import time
import urllib.parse

# How it answers for the objects below `bad-`. It may be at any time, so that a container is entered by some.
LIES = ("honest", "honest", "hang", "cut", "other version", "other range", "other length", "whole", "error", "trickle")
# Seconds that a lost answer takes; whoever asks is told to wait for less.
LOST = 8


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers HEAD, GET with a range, and lists of the one bucket."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        try:
            self.answer()
        except OSError:
            self.close_connection = True

    def reply(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def list(self, query):
        prefix, objects = query.get("prefix", ""), self.server.objects
        keys = [key for key in sorted(objects) if key.startswith(prefix)][:int(query.get("max-keys", "1000"))]
        entry = "<Contents><Key>{0}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>" \
                "<ETag>&quot;{0}&quot;</ETag><Size>{1}</Size></Contents>"
        text = "".join(entry.format(key, len(objects[key])) for key in keys)
        self.reply(200, {}, f"<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>".encode())

    def answer(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if "list-type" in query:
            return self.list(query)
        key = urllib.parse.unquote(url.path).split("/", 2)[-1]
        data = self.server.objects.get(key)
        if data is None:
            return self.reply(404, {})
        how = random.choice(LIES) if "/bad-" in key else "honest"
        start, end = 0, len(data)
        said = self.headers.get("Range", "").removeprefix("bytes=")
        if said and how != "whole":
            first, last = said.split("-")
            start, end = (int(first), min(end, int(last or end) + 1)) if first else (end - int(last), end)
        etag = "other" if how == "other version" else key
        headers = {"ETag": f'"{etag}"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        part = data[start:end]
        if how == "hang":
            time.sleep(LOST)
        if how == "error":
            return self.reply(random.choice((403, 404, 500, 503)), {})
        if how == "other range":
            start, end = start + 1, end + 1
        if how == "other length":
            part += b"more"
        if said and how != "whole":
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        if how in ("cut", "trickle"):
            headers["Content-Length"] = len(part)
            slow = how == "trickle"
            self.reply(206 if said else 200, headers, part[:len(part) // 2])
            for byte in part[len(part) // 2:][:LOST * 10 if slow else 0]:
                self.wfile.write(bytes([byte]))
                time.sleep(0.1)
            self.close_connection = True
            return None
        return self.reply(206 if "Content-Range" in headers else 200, headers, part)


class Server(http.server.ThreadingHTTPServer):
    """Serves `objects`, bytes by key, until the end of a `with`."""

    daemon_threads = True

    def __init__(self, objects):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = objects
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

    def env(self):
        """How the program finds it."""
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_address[1]}", "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
