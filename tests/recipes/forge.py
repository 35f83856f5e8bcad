"""A test double of the comment APIs of GitHub and GitLab, with a folder of downloads. It records every request."""

import json
import pathlib
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GITHUB_TOKEN = "ghs_recipes-test-token"
GITLAB_TOKEN = "glpat-recipes-test-token"
# The account of each token, and the number of its comments on a page.
GITHUB_ACCOUNT = "github-actions[bot]"
GITLAB_ACCOUNT = 7001
PAGE = 100


class Forge:
    """The server. `comments` are those of one pull request or merge request, oldest first."""

    def __init__(self, downloads=None):
        self.comments, self.requests, self.fail = [], [], {}
        self.downloads = pathlib.Path(downloads) if downloads else None
        self.lock = threading.Lock()
        forge = self

        class Handler(RequestHandler):
            pass

        Handler.forge = forge
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)

    def add(self, author, body):
        comment = {"id": 9000 + len(self.comments), "author": author, "body": body}
        self.comments.append(comment)
        return comment

    def written(self):
        """Returns the methods of the requests that changed something."""
        return [method for method, _ in self.requests if method != "GET"]


class RequestHandler(BaseHTTPRequestHandler):
    forge = None

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.forge.lock:
            self.forge.requests.append((self.command, self.path))
            if status := self.forge.fail.get(self.command):
                return self.answer(status, {"message": "refused by the test"})
            url = urllib.parse.urlsplit(self.path)
            query = urllib.parse.parse_qs(url.query)
            if url.path.startswith("/downloads/") and self.command == "GET":
                return self.download(url.path.removeprefix("/downloads/"))
            if url.path.startswith("/github/"):
                return self.github(url.path.removeprefix("/github"), query, body)
            if url.path.startswith("/gitlab/"):
                return self.gitlab(url.path.removeprefix("/gitlab"), query, body)
            return self.answer(404, {"message": "Not Found"})

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = respond

    def download(self, name):
        file = self.forge.downloads / name if self.forge.downloads and "/" not in name else None
        return self.answer(200, file.read_bytes()) if file and file.is_file() else self.answer(404, b"no such file")

    def page(self, query, shape):
        size, page = int(query.get("per_page", ["30"])[0]), int(query.get("page", ["1"])[0])
        size = min(size, PAGE)
        return self.answer(200, [shape(comment) for comment in self.forge.comments[(page - 1) * size : page * size]])

    def change(self, identity, body, shape):
        for comment in self.forge.comments:
            if comment["id"] == int(identity):
                comment["body"] = body
                return self.answer(200, shape(comment))
        return self.answer(404, {"message": "Not Found"})

    def github(self, path, query, body):
        def shape(comment):
            url = f"https://github.example/acme/docs/pull/12#issuecomment-{comment['id']}"
            return {"id": comment["id"], "body": comment["body"], "user": {"login": comment["author"]}, "html_url": url}

        if self.headers.get("Authorization") != f"Bearer {GITHUB_TOKEN}":
            return self.answer(401, {"message": "Bad credentials"})
        if path == "/repos/acme/docs/issues/12/comments":
            if self.command == "GET":
                return self.page(query, shape)
            if self.command == "POST":
                return self.answer(201, shape(self.forge.add(GITHUB_ACCOUNT, json.loads(body)["body"])))
        match = re.fullmatch(r"/repos/acme/docs/issues/comments/(\d+)", path)
        if match and self.command == "PATCH":
            return self.change(match[1], json.loads(body)["body"], shape)
        return self.answer(404, {"message": "Not Found"})

    def gitlab(self, path, query, body):
        def shape(comment):
            return {"id": comment["id"], "body": comment["body"], "author": {"id": comment["author"]}, "system": False}

        if self.headers.get("PRIVATE-TOKEN") != GITLAB_TOKEN:
            return self.answer(401, {"message": "401 Unauthorized"})
        form = urllib.parse.parse_qs(body.decode(), strict_parsing=True) if body else {}
        if path == "/user" and self.command == "GET":
            return self.answer(200, {"id": GITLAB_ACCOUNT, "bot": True})
        if path == "/projects/41/merge_requests/12/notes":
            if self.command == "GET":
                return self.page(query, shape)
            if self.command == "POST":
                return self.answer(201, shape(self.forge.add(GITLAB_ACCOUNT, form["body"][0])))
        match = re.fullmatch(r"/projects/41/merge_requests/12/notes/(\d+)", path)
        if match and self.command == "PUT":
            return self.change(match[1], form["body"][0], shape)
        return self.answer(404, {"message": "404 Not Found"})
