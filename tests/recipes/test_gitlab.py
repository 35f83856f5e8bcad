"""The recipes for GitLab, executed as one shell script each, as its runner does."""

import hashlib
import os
import pathlib
import unittest

from fixture import RecipeTest, archive
from forge import GITLAB_ACCOUNT, GITLAB_TOKEN, PAGE
from origin import BROKEN_BRANCH, HOSTILE_BRANCHES
from runners import GitlabRunner, load
from upstream import ExportApi, damaged_archive

SHELLS = {"bash": ["bash"], "the shell of BusyBox": ["/bin/busybox", "sh"]}


class GitlabTest(RecipeTest):
    def setUp(self):
        super().setUp()
        self.key_file, self.token_file = self.folder / "key-of-gitlab", self.folder / "token-of-gitlab"
        self.other_key_file = self.folder / "key-of-the-other-recipe"
        # GitLab writes the value of a variable of type File as it was typed.
        self.key_file.write_text(f"{self.origin.key}\n")
        self.other_key_file.write_text("a-key-that-the-origin-refuses\n")
        self.token_file.write_text(f"{GITLAB_TOKEN}\n")

    def variables(self, **changes):
        variables = {
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_API_V4_URL": f"{self.forge.url}/gitlab",
            "CI_PROJECT_ID": "41",
            "CI_MERGE_REQUEST_IID": "12",
            "CI_MERGE_REQUEST_PROJECT_ID": "41",
            "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "41",
            "CI_MERGE_REQUEST_PROJECT_URL": "https://gitlab.example/acme/docs",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "feature/tides",
            "DOCWHARF_PREVIEW_KEY_FILE": str(self.key_file),
            "DOCWHARF_COMMENT_TOKEN_FILE": str(self.token_file),
        }
        return {name: value for name, value in (variables | changes).items() if value is not None}

    def run_recipe(self, name, replaced, changes, shell=("bash",), path=None):
        file, digest = archive()
        replaced = self.settings() | {
            "DOCWHARF_URL": f"{self.forge.url}/downloads/{file.name}", "DOCWHARF_SHA256": digest,
        } | (replaced or {})
        path = path or os.environ["PATH"]
        runner = GitlabRunner(self.next_folder(), self.variables(**changes), replaced, path, shell)
        result = runner.run(load(name))
        for secret in (self.origin.key, GITLAB_TOKEN):
            self.assertNotIn(secret, result.output)
        # The folder with the program and the token has been removed.
        self.assertEqual([], [file.name for file in runner.folder.iterdir() if file.name.startswith("tmp")])
        return result

    def preview(self, replaced=None, shell=("bash",), path=None, **changes):
        return self.run_recipe("gitlab-preview.yml", replaced, changes, shell, path)

    def export(self, replaced=None, shell=("bash",), path=None, **changes):
        # A pipeline of a protected branch has the variables of both recipes.
        changes = {
            "CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main",
            "DOCWHARF_EXPORT": "true", "DOCWHARF_PREVIEW_KEY_FILE": str(self.other_key_file),
            "DOCWHARF_EXPORT_KEY_FILE": str(self.key_file),
        } | changes
        return self.run_recipe("gitlab-export.yml", replaced, changes, shell, path)

    def folder_like_alpine(self):
        """Returns a PATH like that of the recipes' image: BusyBox, and an apk that installs what is asked for."""
        folder = self.next_folder()
        folder.mkdir()
        for applet in "basename cat cp grep mkdir mktemp rm sh sha256sum tar".split():
            (folder / applet).symlink_to("/bin/busybox")
        apk = folder / "apk"
        apk.write_text(
            f'#!/bin/sh\necho "apk $*"\n[ "$1 $2" = "add --no-cache" ] || exit 1\nshift 2\n'
            f'for name in "$@"; do /bin/ln -s "/usr/bin/$name" {folder}/; done\n'
        )
        apk.chmod(0o755)
        return str(folder)


class GitlabPreview(GitlabTest):
    def test_a_merge_request_gets_one_comment_that_the_second_pipeline_updates(self):
        self.forge.add(5, "Looks good")
        for shell, command in SHELLS.items():
            result = self.preview(shell=command)
            self.assertTrue(result.succeeded, f"{shell}: {result.output}")
            (body,) = self.bodies(GITLAB_ACCOUNT)
            self.assertIn("### Documentation preview: ready", body)
            self.assertIn(f"<{self.origin.address}preview/docs/feature-tides/>", body)
            self.forge.comments[1]["body"] = body.splitlines()[0] + "\noutdated"
        self.assertEqual(["POST", "PUT"], self.forge.written())
        self.assertEqual("Looks good", self.forge.comments[0]["body"])
        self.assertIn("https://gitlab.example/acme/docs/-/merge_requests/12#note_9001", result.output)

    def test_the_image_gets_the_programs_that_it_lacks(self):
        path = self.folder_like_alpine()
        result = self.preview(shell=SHELLS["the shell of BusyBox"], path=path)
        self.assertTrue(result.succeeded, result.output)
        self.assertIn("apk add --no-cache curl jq\n", result.output)
        self.assertEqual(1, len(self.forge.comments))
        # An image that has them needs no apk.
        os.remove(pathlib.Path(path) / "apk")
        result = self.preview(shell=SHELLS["the shell of BusyBox"], path=path)
        self.assertTrue(result.succeeded, result.output)
        os.remove(pathlib.Path(path) / "jq")
        self.assertFalse(self.preview(shell=SHELLS["the shell of BusyBox"], path=path).succeeded)

    def test_the_comment_is_found_on_the_second_page(self):
        for number in range(PAGE):
            self.forge.add(5, f"comment {number}")
        self.assertTrue(self.preview().succeeded)
        self.assertTrue(self.preview().succeeded)
        self.assertEqual(["POST", "PUT"], self.forge.written())
        self.assertEqual(PAGE + 1, len(self.forge.comments))

    def test_a_comment_of_another_account_is_not_overwritten(self):
        imitation = "<!-- docwharf preview: feature/tides -->\nof another account"
        self.forge.add(5, imitation)
        self.assertTrue(self.preview().succeeded)
        self.assertEqual(["POST"], self.forge.written())
        self.assertEqual(imitation, self.forge.comments[0]["body"])

    def test_a_fork_and_other_pipelines_start_nothing(self):
        for changes in (
            # In the project of the fork, and started for it in this project by a member.
            {"CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99"},
            {"CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99"},
            {"CI_PIPELINE_SOURCE": "push", **dict.fromkeys(
                ("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "CI_MERGE_REQUEST_PROJECT_ID"))},
        ):
            self.assertFalse(self.preview(**changes).ran, changes)
        self.assertEqual([], self.forge.requests)

    def test_no_name_of_a_branch_is_executed(self):
        for branch in HOSTILE_BRANCHES:
            result = self.preview(CI_MERGE_REQUEST_SOURCE_BRANCH_NAME=branch)
            self.assertTrue(result.succeeded, result.output)
        self.assertEqual(["POST"] * len(HOSTILE_BRANCHES), self.forge.written())
        # Git allows no line feed and no leading hyphen. Both reach the origin as they are, which refuses them.
        for branch in ("x\n$(touch reached)\n'; touch reached #", "--help"):
            result = self.preview(CI_MERGE_REQUEST_SOURCE_BRANCH_NAME=branch, shell=SHELLS["the shell of BusyBox"])
            self.assertFalse(result.succeeded, result.output)
            self.assertIn(f"start the preview of {branch[:1]}", result.output)
        self.assertEqual(len(HOSTILE_BRANCHES), len(self.forge.comments))
        self.assert_no_trace([self.origin.key, GITLAB_TOKEN])

    def test_a_failed_deployment_is_commented_and_fails_the_job(self):
        for command in SHELLS.values():
            result = self.preview(shell=command, CI_MERGE_REQUEST_SOURCE_BRANCH_NAME=BROKEN_BRANCH)
            self.assertTrue(result.ran and not result.succeeded, result.output)
            (body,) = self.bodies(GITLAB_ACCOUNT)
            self.assertIn("### Documentation preview: failed", body)

    def test_a_refused_key_fails_the_job_without_a_comment(self):
        self.key_file.write_text("another-key")
        result = self.preview()
        self.assertTrue(result.ran and not result.succeeded, result.output)
        self.assertEqual([], self.forge.comments)

    def test_a_refusal_by_gitlab_fails_the_job(self):
        self.assertTrue(self.preview().succeeded)
        self.forge.fail = {"PUT": 502}
        self.assertFalse(self.preview().succeeded)
        self.forge.comments, self.forge.fail = [], {"POST": 403}
        self.assertFalse(self.preview().succeeded)
        self.forge.fail = {}
        self.token_file.write_text("another-token")
        self.assertFalse(self.preview(shell=SHELLS["the shell of BusyBox"]).succeeded)
        self.assertEqual([], self.forge.comments)

    def test_an_archive_with_another_digest_is_not_executed(self):
        for command in SHELLS.values():
            result = self.preview({"DOCWHARF_SHA256": "0" * 64}, shell=command)
            self.assertTrue(result.ran and not result.succeeded, result.output)
            self.assertIn("FAILED", result.output)
        file, _ = archive()
        self.assertFalse(self.preview({"DOCWHARF_URL": f"{self.forge.url}/downloads/absent-{file.name}"}).succeeded)
        self.assertEqual([], self.forge.comments)

    def test_values_that_nobody_has_set_are_refused_before_anything_runs(self):
        (job,) = load("gitlab-preview.yml").values()
        for name in set(job["variables"]) - {"GIT_STRATEGY", "DOCWHARF_URL"}:
            result = self.preview({name: job["variables"][name]})
            self.assertFalse(result.succeeded, name)
            self.assertRegex(result.output, "marked SET|is not set")
        for name in ("DOCWHARF_PREVIEW_KEY_FILE", "DOCWHARF_COMMENT_TOKEN_FILE"):
            # Absent, and of the wrong type: then it has the secret itself, which the message does not repeat.
            for value in (None, self.origin.key):
                result = self.preview(**{name: value})
                self.assertFalse(result.succeeded, name)
                self.assertIn(f"there is no CI/CD variable of type File with the name {name}", result.output)
        self.assertEqual([], self.forge.requests)


class GitlabExport(GitlabTest):
    def test_an_export_is_verified_and_kept_with_its_digest(self):
        alpine = {"shell": SHELLS["the shell of BusyBox"], "path": self.folder_like_alpine()}
        by_hand = {"CI_PIPELINE_SOURCE": "web", "DOCWHARF_EXPORT": None}
        for options in ({}, by_hand, alpine):
            result = self.export(**options)
            self.assertEqual((True, options is by_hand), (result.succeeded, result.manual), result.output)
            self.assertEqual({"SHA256SUMS", "bundle.tar.gz"}, set(result.kept))
            digest, name = result.kept["SHA256SUMS"].read_text().split()
            self.assertEqual(hashlib.sha256(result.kept[name].read_bytes()).hexdigest(), digest)
        self.assertIn("apk add --no-cache curl\n", result.output)

    def test_other_pipelines_export_nothing(self):
        for source in ("push", "merge_request_event"):
            self.assertFalse(self.export(CI_PIPELINE_SOURCE=source).ran)
        # Another schedule of the project, and other branches: a merge request's pipeline has no CI_COMMIT_BRANCH.
        for value in (None, "", "false"):
            self.assertFalse(self.export(DOCWHARF_EXPORT=value).ran, value)
        for source in ("schedule", "web"):
            for branch in ("feature/tides", None):
                self.assertFalse(self.export(CI_PIPELINE_SOURCE=source, CI_COMMIT_BRANCH=branch).ran, source)
        self.assertEqual([], self.forge.requests)

    def test_a_bundle_that_is_refused_is_not_kept(self):
        for bundle, command in zip((b"not an archive", damaged_archive()), SHELLS.values()):
            with ExportApi(bundle) as api:
                result = self.export({"DOCWHARF_API__BASE_URL": api.url}, shell=command)
            self.assertEqual((True, False, {}), (result.ran, result.succeeded, result.kept))
            self.assertIn("site.zip", result.output)

    def test_a_failed_export_fails_the_job(self):
        for name, value in (("DOMAIN", "unknown.example"), ("BASE_URL", "http://127.0.0.1:1/v1")):
            result = self.export({f"DOCWHARF_API__{name}": value})
            self.assertEqual((True, False, {}), (result.ran, result.succeeded, result.kept), result.output)

    def test_values_that_nobody_has_set_are_refused_before_anything_runs(self):
        (job,) = load("gitlab-export.yml").values()
        for name in set(job["variables"]) - {"GIT_STRATEGY", "DOCWHARF_URL"}:
            result = self.export({name: job["variables"][name]})
            self.assertFalse(result.succeeded, name)
            self.assertRegex(result.output, "marked SET|is not set")
        for value in (None, self.origin.key):
            result = self.export(DOCWHARF_EXPORT_KEY_FILE=value)
            self.assertFalse(result.succeeded)
            self.assertIn("no CI/CD variable of type File with the name DOCWHARF_EXPORT_KEY_FILE", result.output)
        self.assertEqual([], self.forge.requests)


if __name__ == "__main__":
    unittest.main()
