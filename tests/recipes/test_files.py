"""Facts of the recipes that no run shows: permissions, digests, where branch names and secrets occur."""

import json
import re
import subprocess
import tempfile
import tomllib
import unittest

import yaml

from fixture import ROOT, archive
from runners import RECIPES, UniqueKeyLoader, load

WORKFLOWS = {"github-preview.yml": {"pull-requests": "write"}, "github-export.yml": {}}
GITLAB_FILES = ["gitlab-preview.yml", "gitlab-export.yml"]
SECRET = "${{ secrets.DOCWHARF_API_KEY }}"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
IMAGE_BY_DIGEST = re.compile(r"[a-z0-9./:-]+@sha256:[0-9a-f]{64}")


def only_job(file):
    (job,) = (file["jobs"] if "jobs" in file else file).values()
    return job


def shellcheck(shell, script):
    with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
        # The runners set these options.
        file.write({"bash": "set -eo pipefail\n", "sh": "set -e\n"}[shell] + script)
        file.flush()
        # SC2154: variables come from the environment. SC2016: programs of jq are in single quotes.
        done = subprocess.run(["shellcheck", f"--shell={shell}", "--exclude=SC2154,SC2016", file.name],
                              capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


class GithubFiles(unittest.TestCase):
    def test_all_recipes_are_tested(self):
        names = {file.name for file in RECIPES.iterdir()}
        self.assertEqual(set(WORKFLOWS) | set(GITLAB_FILES), names)

    def test_a_workflow_has_only_the_permissions_that_it_needs(self):
        for name, permissions in WORKFLOWS.items():
            workflow = load(name)
            self.assertEqual({}, workflow["permissions"], name)
            self.assertEqual(permissions, only_job(workflow)["permissions"], name)

    def test_previews_run_for_pull_requests_without_the_rights_of_their_target(self):
        self.assertEqual({"pull_request": None}, load("github-preview.yml")["on"])
        self.assertEqual({"schedule", "workflow_dispatch"}, set(load("github-export.yml")["on"]))

    def test_one_step_has_the_key_and_none_has_it_with_the_token(self):
        for name in WORKFLOWS:
            workflow = load(name)
            steps = only_job(workflow)["steps"]
            with_key = [step["name"] for step in steps if SECRET in json.dumps(step)]
            with_token = [step["name"] for step in steps if "github.token" in json.dumps(step)]
            self.assertEqual(1, len(with_key), name)
            self.assertEqual(set(), set(with_key) & set(with_token), name)
            for step in steps:
                if {"API_KEY", "TOKEN"} & set(step.get("env", {})):
                    # It writes the secret to a file, which no other user of the runner can read.
                    self.assertEqual("umask 077", step["run"].splitlines()[0], name)
                step.get("env", {}).pop("API_KEY", None)
            self.assertNotIn("secrets.", json.dumps(workflow), name)

    def test_no_script_of_a_workflow_contains_an_expression(self):
        for name in WORKFLOWS:
            for step in only_job(load(name))["steps"]:
                self.assertNotIn("${{", step.get("run", ""), f"{name}: {step['name']}")

    def test_actions_and_images_are_named_by_digest(self):
        for name in WORKFLOWS:
            workflow = load(name)
            for step in only_job(workflow)["steps"]:
                if "uses" in step:
                    self.assertRegex(step["uses"], r"^[a-z/-]+@[0-9a-f]{40}$", name)
                # The first step has refused every name of an image that is none.
                script = step.get("run", "")
                self.assertEqual(script.count("docker run "), script.count(' "$DOCWHARF_IMAGE" '), name)
            self.assertEqual("ghcr.io/docwharf/docwharf@sha256:SET-DIGEST", workflow["env"]["DOCWHARF_IMAGE"])

    def test_containers_have_no_rights_that_they_do_not_need(self):
        for name in WORKFLOWS:
            for step in only_job(load(name))["steps"]:
                for command in step.get("run", "").split("docker run ")[1:]:
                    options = command.split('"$DOCWHARF_IMAGE"')[0].replace("\\\n", " ").split()
                    needed = ["--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user"]
                    self.assertEqual(needed, [option for option in options if option in needed], name)
                    # Only what talks to the management API has the key, and the network.
                    has_key = "DOCWHARF_API__KEY_FILE=/run/secrets/api-key" in options
                    self.assertNotEqual(has_key, "--network=none" in options, name)

    def test_jobs_end_and_do_not_overlap(self):
        for name in WORKFLOWS:
            workflow = load(name)
            self.assertLessEqual(only_job(workflow)["timeout-minutes"], 60)
            self.assertTrue(workflow["concurrency"]["group"])
        for name in GITLAB_FILES:
            self.assertRegex(only_job(load(name))["timeout"], "^[2-6]0 minutes$")
            self.assertTrue(only_job(load(name))["resource_group"])

    def test_shellcheck_finds_nothing(self):
        for name in WORKFLOWS:
            for step in only_job(load(name))["steps"]:
                if "run" in step:
                    self.assertEqual("", shellcheck("bash", step["run"]), f"{name}: {step['name']}")
        for name in GITLAB_FILES:
            job = only_job(load(name))
            script = "\n".join(job["before_script"] + job["script"])
            self.assertEqual("", shellcheck("sh", script), name)


class GitlabFiles(unittest.TestCase):
    def test_the_image_is_named_by_digest(self):
        for name in GITLAB_FILES:
            self.assertRegex(only_job(load(name))["image"], IMAGE_BY_DIGEST, name)

    def test_a_job_gets_neither_the_repository_nor_artifacts_nor_defaults(self):
        for name in GITLAB_FILES:
            job = only_job(load(name))
            self.assertEqual(("none", [], False),
                             (job["variables"]["GIT_STRATEGY"], job["needs"], job["inherit"]["default"]), name)
            # What the two recipes are made of. An id_token, a service or a cache would be more than they need.
            self.assertLessEqual(set(job), {"image", "rules", "inherit", "needs", "resource_group", "interruptible",
                                            "timeout", "variables", "before_script", "script", "artifacts"})

    def test_the_recipes_of_one_project_have_variables_of_their_own(self):
        # One name could not be protected for exports and not protected for previews.
        names = [set(re.findall(r"\w+_FILE\b", (RECIPES / name).read_text())) for name in GITLAB_FILES]
        own = {"DOCWHARF_API__KEY_FILE"}
        self.assertEqual([{"DOCWHARF_PREVIEW_KEY_FILE", "DOCWHARF_COMMENT_TOKEN_FILE"},
                          {"DOCWHARF_EXPORT_KEY_FILE"}], [found - own for found in names])

    def test_an_artifact_is_of_a_job_that_succeeded_and_is_not_kept_forever(self):
        artifacts = only_job(load("gitlab-export.yml"))["artifacts"]
        self.assertEqual(("on_success", "30 days"), (artifacts["when"], artifacts["expire_in"]))

    def test_the_name_of_the_branch_is_expanded_once_by_the_shell_and_in_quotes(self):
        text = (RECIPES / "gitlab-preview.yml").read_text()
        self.assertEqual(1, len(re.findall(r"CI_MERGE_REQUEST_SOURCE_BRANCH\w*", text)))
        self.assertIn('--branch="$CI_MERGE_REQUEST_SOURCE_BRANCH_NAME" ', text)
        for name in GITLAB_FILES:
            # GitLab would expand these in a value of its own before the shell sees it. Rules only compare them.
            job = only_job(load(name))
            compared = ("rules", "before_script", "script")
            own = json.dumps({key: value for key, value in job.items() if key not in compared})
            self.assertNotRegex(own, "BRANCH|REF_NAME|TITLE|eval", name)

    def test_the_archive_is_that_of_this_version(self):
        expected = (f"https://github.com/docwharf/docwharf/releases/download/v{VERSION}/"
                    f"docwharf-{VERSION}-x86_64-unknown-linux-musl.tar.gz")
        for name in GITLAB_FILES:
            variables = only_job(load(name))["variables"]
            self.assertEqual((expected, "SET-SHA256"), (variables["DOCWHARF_URL"], variables["DOCWHARF_SHA256"]), name)
        # Its name, as `packaging/build tarball` makes it.
        self.assertEqual(archive()[0].name, expected.rpartition("/")[2])


class ComposeFile(unittest.TestCase):
    def test_the_service_has_no_rights_that_it_does_not_need(self):
        file = yaml.load((ROOT / "deploy" / "compose.yaml").read_text(), UniqueKeyLoader)
        (service,) = file["services"].values()
        self.assertEqual((True, ["ALL"], ["no-new-privileges:true"], ["data:/data"], ["api-key"]),
                         (service["read_only"], service["cap_drop"], service["security_opt"], service["volumes"],
                          service["secrets"]))
        self.assertEqual(f"${{DOCWHARF_IMAGE:-ghcr.io/docwharf/docwharf:{VERSION}}}", service["image"])
        # The key is a file, never a variable.
        self.assertNotIn("DOCWHARF_API_KEY", service["environment"])
        self.assertEqual("/run/secrets/api-key", service["environment"]["DOCWHARF_API__KEY_FILE"])
        # Only programs of this host reach it.
        self.assertTrue(all(port.startswith("127.0.0.1:") for port in service["ports"]))


if __name__ == "__main__":
    unittest.main()
