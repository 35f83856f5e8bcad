"""Renders the chart with Helm 3 and Helm 4, and the kustomizations with kubectl."""

import pathlib
import subprocess
import tempfile

import helm_python
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/docwharf"
KUSTOMIZATIONS = ROOT / "deploy/kubernetes"
# Helm 3.6 believes to be beside Kubernetes 1.21 if it is not told otherwise.
KUBE_VERSION = "1.34.0"


class Refused(Exception):
    """The values or the release name were refused; the text is the message of Helm."""


def objects_of(text):
    """Returns the objects of a stream of YAML documents."""
    return [document for document in yaml.safe_load_all(text) if document]


class Helm3:
    """The program `helm`."""

    def __init__(self, program):
        self.program = program
        self.name = "helm " + self._run("version", "--template", "{{.Version}}").strip()

    def _run(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout

    def render(self, values, release="docs", upgrade=False):
        """Returns the objects for values (the text of a file of values)."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(values)
            file.flush()
            arguments = ["template", release, str(CHART), "--kube-version", KUBE_VERSION, "--values", file.name]
            return objects_of(self._run(*arguments, *(["--is-upgrade"] if upgrade else [])))

    def lint(self, values):
        """Raises Refused if `helm lint --strict` finds a fault."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(values)
            file.flush()
            self._run("lint", "--strict", str(CHART), "--values", file.name)


class Helm4:
    """The library of Helm 4, in this process."""

    def __init__(self):
        self.name = "helm " + helm_python.helm_sdk_version()
        self.chart = helm_python.Chart.load(CHART)

    def render_texts(self, values, release="docs", upgrade=False):
        """Returns the text of each template, NOTES.txt included, by its path."""
        try:
            helm_python.validate_release_name(release)
            values = helm_python.values_from_yaml(values)
            self.chart.validate_schema(values)
            return self.chart.render(
                values, name=release, namespace="default", is_install=not upgrade, is_upgrade=upgrade
            )
        except helm_python.HelmError as error:
            raise Refused(str(error)) from None

    def render(self, values, release="docs", upgrade=False):
        """Returns the objects for values (the text of a file of values)."""
        texts = self.render_texts(values, release, upgrade)
        return [item for path, text in texts.items() if path.endswith(".yaml") for item in objects_of(text)]

    def lint(self, values):
        """Raises Refused if the linter finds a fault."""
        report = helm_python.lint(CHART, helm_python.values_from_yaml(values), strict=True)
        faults = [message for message in report["messages"] if message["severity"] >= 2]
        if faults or report["errors"]:
            raise Refused(str(faults or report["errors"]))


class Kubectl:
    """A `kubectl`, for the kustomize in it."""

    def __init__(self, program):
        self.program = program
        version = subprocess.run([program, "version", "--client"], capture_output=True, text=True, check=True).stdout
        self.name = (
            "kubectl " + version.split('GitVersion:"')[-1].split("Client Version: ")[-1].split()[0].split('"')[0]
        )

    def render(self, kustomization):
        """Returns the objects of a folder of deploy/kubernetes."""
        folder = str(KUSTOMIZATIONS / kustomization)
        done = subprocess.run([self.program, "kustomize", folder], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return objects_of(done.stdout)
