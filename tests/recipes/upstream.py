"""A management API whose only export has this content, for bundles that an origin would not make."""

import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def damaged_archive():
    """Returns a ZIP one byte of whose page has changed: only its checksum tells."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("index.html", "<h1>Harbour</h1>")
    return file.getvalue().replace(b"Harbour", b"harbour", 1)


class ExportApi:
    def __init__(self, bundle):
        api = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def answer(self, body, content_type="application/json"):
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def respond(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path.endswith("/bundle"):
                    link = {"bundleUrl": f"http://127.0.0.1:{api.server.server_port}/files/site.zip"}
                    return self.answer(json.dumps(link).encode())
                if self.path.startswith("/files/"):
                    return self.answer(bundle, "application/zip")
                return self.answer(b'{"jobId": "-job 1", "status": "completed"}')

            do_GET = do_POST = respond

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)
