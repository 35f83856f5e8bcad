"""What the tests of the recipes share: the programs under test, an origin, and a folder that is removed afterwards."""

import hashlib
import os
import pathlib
import tempfile
import unittest

from forge import Forge
from origin import DOMAIN, PROJECT, Origin

PROGRAM = os.environ["DOCWHARF"]
IMAGE = os.environ["DOCWHARF_IMAGE"]
DOWNLOADS = pathlib.Path(os.environ["DOCWHARF_DOWNLOADS"])
ROOT = pathlib.Path(__file__).resolve().parents[2]


def archive():
    """Returns the archive of a release and its SHA-256."""
    (file,) = DOWNLOADS.glob("docwharf-*-x86_64-unknown-linux-musl.tar.gz")
    return file, hashlib.sha256(file.read_bytes()).hexdigest()


class RecipeTest(unittest.TestCase):
    """Each test has its own origin, because an organization may request only 5 previews a minute."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.origin = Origin(PROGRAM, self.folder / "origin")
        self.addCleanup(self.origin.close)
        self.forge = Forge(DOWNLOADS)
        self.addCleanup(self.forge.close)
        self.runs = 0

    def next_folder(self):
        self.runs += 1
        return self.folder / f"run-{self.runs}"

    def settings(self):
        """Returns the values that a user of the recipes sets, without those for the program itself."""
        return {
            "DOCWHARF_API__BASE_URL": self.origin.url,
            "DOCWHARF_API__DOMAIN": DOMAIN,
            "DOCWHARF_API__PROJECT_ID": PROJECT,
        }

    def assert_no_trace(self, secrets):
        """No command of a branch name ran: no file of that name is anywhere in the folders of this test."""
        self.assertEqual([], list(self.folder.rglob("reached")))
        for secret in secrets:
            self.assertNotIn(secret, "".join(comment["body"] for comment in self.forge.comments))

    def bodies(self, account):
        return [comment["body"] for comment in self.forge.comments if comment["author"] == account]
