"""An origin of docwharf over a Git repository: the management API of these tests."""

import os
import pathlib
import subprocess
import time

DOMAIN = "docs.acme.example"
PROJECT = "docs"
# Valid names of Git branches, which a shell would act on.
HOSTILE_BRANCHES = [
    "feature/$(touch${IFS}reached)",
    "feature/`touch${IFS}reached`;touch${IFS}reached",
    "feature/\"'|&<x>#{{github.token}}$DOCWHARF_API__KEY_FILE%0a",
]
# The build of this branch fails: it has no page.
BROKEN_BRANCH = "feature/without-a-page"
CONFIGURATION = f"""
[server]
listen = ["127.0.0.1:0"]
[store]
path = "store"
minFree = "1MiB"
[[organization]]
id = "acme"
[[organization.project]]
id = "{PROJECT}"
domain = "{DOMAIN}"
git = "repository"
"""


def git(folder, *arguments):
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_{what}": f"test{'@example.com' if what == 'EMAIL' else ''}"
           for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, env=environment, timeout=60, capture_output=True)


def make_repository(folder):
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "index.html").write_text("<h1>Harbour</h1>")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "The first page")
    for branch in ["feature/tides", *HOSTILE_BRANCHES]:
        git(folder, "checkout", "-q", "-b", branch, "main")
        (folder / "tides.html").write_text("<h1>Tides</h1>")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "Explain tides")
    git(folder, "checkout", "-q", "-b", BROKEN_BRANCH, "main")
    git(folder, "rm", "-q", "index.html")
    git(folder, "commit", "-qm", "No page", "--allow-empty")
    git(folder, "checkout", "-q", "main")


class Origin:
    """A running origin. `url` is its API, `key` its key."""

    def __init__(self, program, folder):
        folder = pathlib.Path(folder)
        folder.mkdir()
        make_repository(folder / "repository")
        (folder / "origin.toml").write_text(CONFIGURATION)
        configuration = ["--config", str(folder / "origin.toml")]
        self.key = subprocess.run(
            [program, "origin", "key", "create", "acme", "recipes", *configuration],
            check=True, timeout=60, capture_output=True, text=True,
        ).stdout.strip()
        with open(folder / "address", "wb") as address, open(folder / "log", "wb") as log:
            self.process = subprocess.Popen([program, "origin", *configuration], stdout=address, stderr=log)
        deadline = time.monotonic() + 60
        while not (folder / "address").read_text().endswith("\n"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"the origin did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)
        self.address = (folder / "address").read_text().splitlines()[0]
        self.url = f"{self.address}v1"

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
