"""The recipes for GitHub, executed step by step."""

import hashlib
import os
import unittest

from fixture import IMAGE, RecipeTest
from forge import GITHUB_ACCOUNT, GITHUB_TOKEN, PAGE
from origin import BROKEN_BRANCH, HOSTILE_BRANCHES
from runners import GithubRunner, load
from upstream import ExportApi, damaged_archive


class GithubTest(RecipeTest):
    def context(self, **changes):
        context = {
            "github.repository": "acme/docs",
            "github.api_url": f"{self.forge.url}/github",
            "github.token": GITHUB_TOKEN,
            "github.head_ref": "feature/tides",
            "github.event.pull_request.number": 12,
            "github.event.pull_request.head.repo.full_name": "acme/docs",
            "github.event.pull_request.user.login": "alice",
            "secrets.DOCWHARF_API_KEY": self.origin.key,
        }
        return context | changes

    def run_recipe(self, name, replaced=None, **changes):
        replaced = self.settings() | {"DOCWHARF_IMAGE": IMAGE} | (replaced or {})
        runner = GithubRunner(self.next_folder(), self.context(**changes), replaced, os.environ["PATH"])
        result = runner.run(load(name))
        for secret in (self.origin.key, GITHUB_TOKEN):
            self.assertNotIn(secret, result.output)
            # Nor does a file with a secret remain on a runner that is used again.
            for file in runner.temporary.rglob("*"):
                self.assertFalse(file.is_file() and secret.encode() in file.read_bytes(), file)
        return result

    def preview(self, replaced=None, **changes):
        return self.run_recipe("github-preview.yml", replaced, **changes)

    def export(self, replaced=None, **changes):
        return self.run_recipe("github-export.yml", replaced, **changes)


class GithubPreview(GithubTest):
    def test_a_pull_request_gets_one_comment_that_the_second_run_updates(self):
        self.forge.add("alice", "Looks good")
        first = self.preview()
        self.assertTrue(first.succeeded, first.output)
        (body,) = self.bodies(GITHUB_ACCOUNT)
        self.assertIn("### Documentation preview: ready", body)
        self.assertIn(f"<{self.origin.address}preview/docs/feature-tides/>", body)
        self.forge.comments[1]["body"] = body.splitlines()[0] + "\r\noutdated"
        second = self.preview()
        self.assertTrue(second.succeeded, second.output)
        self.assertEqual(["POST", "PATCH"], self.forge.written())
        (body,) = self.bodies(GITHUB_ACCOUNT)
        self.assertIn("### Documentation preview: ready", body)
        self.assertEqual("Looks good", self.forge.comments[0]["body"])
        self.assertIn("https://github.example/acme/docs/pull/12#issuecomment-9001", second.output)

    def test_the_comment_is_found_on_the_second_page(self):
        for number in range(PAGE):
            self.forge.add("alice", f"comment {number}")
        self.assertTrue(self.preview().succeeded)
        self.assertTrue(self.preview().succeeded)
        self.assertEqual(["POST", "PATCH"], self.forge.written())
        self.assertEqual(PAGE + 1, len(self.forge.comments))

    def test_a_comment_of_another_account_is_not_overwritten(self):
        imitation = "<!-- docwharf preview: feature/tides -->\nof another account"
        self.forge.add("mallory", imitation)
        self.assertTrue(self.preview().succeeded)
        self.assertEqual(["POST"], self.forge.written())
        self.assertEqual(imitation, self.forge.comments[0]["body"])

    def test_a_fork_and_dependabot_start_nothing(self):
        for changes in (
            {"github.event.pull_request.head.repo.full_name": "mallory/docs"},
            # The repository of the fork has been deleted.
            {"github.event.pull_request.head.repo.full_name": None},
            {"github.event.pull_request.user.login": "dependabot[bot]"},
        ):
            self.assertFalse(self.preview(**changes).ran, changes)
        self.assertEqual([], self.forge.requests)

    def test_no_name_of_a_branch_is_executed(self):
        for branch in HOSTILE_BRANCHES:
            result = self.preview(**{"github.head_ref": branch})
            self.assertTrue(result.succeeded, result.output)
        self.assertEqual(["POST"] * len(HOSTILE_BRANCHES), self.forge.written())
        # Git allows no line feed and no leading hyphen. Both reach the origin as they are, which refuses them.
        for branch in ("x\n$(touch reached)\n'; touch reached #", "--help"):
            result = self.preview(**{"github.head_ref": branch})
            self.assertFalse(result.succeeded, result.output)
            self.assertIn(f"start the preview of {branch[:1]}", result.output)
        self.assertEqual(len(HOSTILE_BRANCHES), len(self.forge.comments))
        self.assert_no_trace([self.origin.key, GITHUB_TOKEN])

    def test_a_failed_deployment_is_commented_and_fails_the_job(self):
        result = self.preview(**{"github.head_ref": BROKEN_BRANCH})
        self.assertFalse(result.succeeded, result.output)
        self.assertEqual("failure", result.steps["Deploy the preview"])
        self.assertEqual("success", result.steps["Comment on the pull request"])
        (body,) = self.bodies(GITHUB_ACCOUNT)
        self.assertIn("### Documentation preview: failed", body)

    def test_a_refused_key_fails_the_job_without_a_comment(self):
        result = self.preview(**{"secrets.DOCWHARF_API_KEY": "another-key"})
        self.assertFalse(result.succeeded)
        self.assertEqual([], self.forge.comments)

    def test_a_refusal_by_github_fails_the_job(self):
        self.assertTrue(self.preview().succeeded)
        for method in ("GET", "PATCH"):
            self.forge.fail = {method: 502}
            self.assertFalse(self.preview().succeeded, method)
        self.forge.comments, self.forge.fail = [], {"POST": 403}
        self.assertFalse(self.preview().succeeded)
        self.assertEqual([], self.forge.comments)

    def test_values_that_nobody_has_set_are_refused_before_anything_runs(self):
        given = load("github-preview.yml")["env"]
        for name in given:
            result = self.preview({name: given[name]})
            self.assertEqual("failure", result.steps["Check the values of this file"], name)
            self.assertEqual("skipped", result.steps["Deploy the preview"], name)
            self.assertEqual("skipped", result.steps["Comment on the pull request"], name)
            self.assertIn("::error::", result.output)
        for image in ("ghcr.io/docwharf/docwharf:0.1.0", IMAGE[:-1], f"{IMAGE}0", f"{IMAGE} --privileged"):
            self.assertEqual("skipped", self.preview({"DOCWHARF_IMAGE": image}).steps["Deploy the preview"], image)
        self.assertEqual([], self.forge.requests)


class GithubExport(GithubTest):
    def test_an_export_is_verified_and_kept_with_its_digest(self):
        result = self.export()
        self.assertTrue(result.succeeded, result.output)
        self.assertEqual({"SHA256SUMS", "bundle.tar.gz"}, set(result.kept))
        self.check_digest(result)

    def test_a_bundle_that_is_refused_is_not_kept(self):
        for bundle in (b"not an archive", damaged_archive()):
            with ExportApi(bundle) as api:
                result = self.export({"DOCWHARF_API__BASE_URL": api.url})
            self.assertEqual("success", result.steps["Export and download"], result.output)
            self.assertEqual("failure", result.steps["Verify"], result.output)
            self.assertEqual(("skipped", {}, False), (result.steps["Keep"], result.kept, result.succeeded))

    def test_a_failed_export_fails_the_job(self):
        for name, value in (("DOMAIN", "unknown.example"), ("BASE_URL", "http://127.0.0.1:1/v1")):
            result = self.export({f"DOCWHARF_API__{name}": value})
            self.assertEqual("failure", result.steps["Export and download"], result.output)
            self.assertEqual(("skipped", {}, False), (result.steps["Keep"], result.kept, result.succeeded))

    def test_values_that_nobody_has_set_are_refused_before_anything_runs(self):
        given = load("github-export.yml")["env"]
        for name in given:
            result = self.export({name: given[name]})
            self.assertEqual("failure", result.steps["Check the values of this file"], name)
            self.assertEqual({"skipped"}, set(list(result.steps.values())[1:]))

    def check_digest(self, result):
        digest, name = result.kept["SHA256SUMS"].read_text().split()
        self.assertEqual(hashlib.sha256(result.kept[name].read_bytes()).hexdigest(), digest)


if __name__ == "__main__":
    unittest.main()
