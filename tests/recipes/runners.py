"""Executes the jobs of the recipes as the runners of GitHub and GitLab do, on this machine.

A condition, an expression or a key of a step that the runner does not know is an error, not ignored.
"""

import pathlib
import re
import shutil
import subprocess

import yaml

from expressions import fill_in, github_value, gitlab_value

RECIPES = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "ci"
STEP_DEADLINE_SECONDS = 180
ALLOWED_STEP_KEYS = {"name", "id", "if", "env", "run", "uses", "with"}


class UniqueKeyLoader(yaml.SafeLoader):
    """Reads YAML, but leaves `on` a string, and refuses a key that is there twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(None, None, f"a key is there twice: {keys}", node.start_mark)
        return super().construct_mapping(node, deep)


UniqueKeyLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
UniqueKeyLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def load(name):
    return yaml.load((RECIPES / name).read_text(), UniqueKeyLoader)


class JobResult:
    """How a job ended. `steps` has the outcome of each step, `output` all that was printed, `kept` the artifacts.

    `manual`: the job waited for a click, and the pipeline did not wait for the job.
    """

    def __init__(self):
        self.ran, self.succeeded, self.steps, self.output, self.kept = False, False, {}, "", {}
        self.manual = False


def execute(command, folder, environment):
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=STEP_DEADLINE_SECONDS, text=True, errors="replace",
    )
    return done.returncode, done.stdout


def copy_artifacts(source, target):
    """Copies a folder, as an upload does, and returns its files by name."""
    shutil.copytree(source, target)
    return {str(file.relative_to(target)): file for file in sorted(target.rglob("*")) if file.is_file()}


class GithubRunner:
    """Runs the only job of a workflow. `context` has the values of its expressions, `replaced` those marked SET."""

    def __init__(self, folder, context, replaced, path):
        self.folder, self.context, self.replaced, self.path = pathlib.Path(folder), dict(context), replaced, path
        self.temporary, self.workspace = self.folder / "temp", self.folder / "work"
        self.temporary.mkdir(parents=True)
        self.workspace.mkdir()
        self.context |= {"runner.temp": str(self.temporary)}

    def run(self, workflow):
        result = JobResult()
        (job,) = workflow["jobs"].values()
        if "if" in job and not github_value(job["if"], self.context):
            return result
        result.ran, result.succeeded = True, True
        environment = {
            "PATH": self.path, "HOME": str(self.folder), "RUNNER_TEMP": str(self.temporary), "CI": "true",
            "GITHUB_API_URL": self.context["github.api_url"], "GITHUB_REPOSITORY": self.context["github.repository"],
        } | workflow.get("env", {}) | self.replaced
        for step in job["steps"]:
            self.step(step, job["defaults"]["run"]["shell"], environment, result)
        return result

    def step(self, step, shell, environment, result):
        if unknown := set(step) - ALLOWED_STEP_KEYS:
            raise KeyError(f"the runner of the tests does not know {unknown}")
        self.context |= {"cancelled()": lambda: False, "success()": lambda: result.succeeded,
                         "failure()": lambda: not result.succeeded, "always()": lambda: True}
        condition = step.get("if", "success()").removeprefix("${{").removesuffix("}}")
        # Without a function of the status, a step runs after success only.
        if not any(f"{name}()" in condition for name in ("always", "cancelled", "failure", "success")):
            condition = f"success() && ({condition})"
        if not github_value(condition, self.context):
            outcome = "skipped"
        elif "uses" in step:
            outcome = "success" if self.upload(step, result) else "failure"
        else:
            outcome = self.execute(step, shell, environment, result)
        result.steps[step["name"]] = outcome
        result.succeeded = result.succeeded and outcome != "failure"
        if "id" in step:
            self.context[f"steps.{step['id']}.outcome"] = outcome

    def execute(self, step, shell, environment, result):
        assert shell == "bash", shell
        script = self.folder / "step.sh"
        script.write_text(fill_in(step["run"], self.context))
        own = {name: fill_in(value, self.context) for name, value in step.get("env", {}).items()}
        # GitHub's command for `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        code, output = execute(command, self.workspace, environment | own)
        result.output += output
        return "success" if code == 0 else "failure"

    def upload(self, step, result):
        assert step["uses"].startswith("actions/upload-artifact@"), step["uses"]
        options = step["with"]
        source = pathlib.Path(fill_in(options["path"], self.context))
        if not source.is_dir() or not any(source.iterdir()):
            return options["if-no-files-found"] != "error"
        result.kept = copy_artifacts(source, self.folder / "kept")
        return True


class GitlabRunner:
    """Runs the only job of a GitLab file with this shell. `variables` are predefined ones and those of the project."""

    def __init__(self, folder, variables, replaced, path, shell=("bash",)):
        self.folder, self.variables, self.replaced, self.path = pathlib.Path(folder), variables, replaced, path
        self.shell = list(shell)
        self.project = self.folder / "project"
        self.project.mkdir(parents=True)

    def run(self, file):
        result = JobResult()
        (job,) = file.values()
        # Rules see the predefined variables. The first one that matches decides.
        rule = next((rule for rule in job["rules"] if gitlab_value(rule["if"], self.variables)), None)
        if rule is None:
            return result
        options = {key: value for key, value in rule.items() if key != "if"}
        if options not in ({}, {"when": "manual", "allow_failure": True}):
            raise KeyError(f"the runner of the tests does not know {options}")
        # A job that waits for a click gets it.
        result.ran, result.manual = True, bool(options)
        environment = {"PATH": self.path, "HOME": str(self.folder), "CI": "true", "TMPDIR": str(self.folder)}
        environment |= job["variables"] | self.variables | self.replaced
        script = self.folder / "job.sh"
        # One shell for both lists. GitLab's runner sets these options; pipefail only where the shell has it.
        options = "if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi\nset -o errexit\nset +o noclobber\n"
        script.write_text(options + "\n".join([*job.get("before_script", []), *job["script"]]))
        code, result.output = execute([*self.shell, str(script)], self.project, environment)
        result.succeeded = code == 0
        if result.succeeded and "artifacts" in job:
            (path,) = job["artifacts"]["paths"]
            result.kept = copy_artifacts(self.project / path, self.folder / "kept")
        return result
