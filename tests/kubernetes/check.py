"""Renders the kustomizations and the chart with each set of values, checks the promises, and writes the objects for
other tools.

usage: check.py FOLDER HELM KUBECTL…: writes FOLDER/PROGRAM/SET.yaml"""

import json
import pathlib
import re
import sys
import traceback

import yaml

import chart_promises
import pod_promises
import violations
from render import KUSTOMIZATIONS, Helm3, Helm4, Kubectl

VALUES = pathlib.Path(__file__).resolve().parent / "values"


class Checks:
    """Runs checks, and counts those that fail."""

    def __init__(self):
        self.passed = self.failed = 0

    def run(self, name, check, *arguments):
        """Runs one check, and returns its result."""
        try:
            result = check(*arguments)
            self.passed += 1
            return result
        except Exception:  # each fault is reported, whatever it is
            self.failed += 1
            print(f"FAILED: {name}\n{traceback.format_exc()}", file=sys.stderr)
            return None

    def pods(self, name, objects):
        """Checks the promises about pods."""
        for promise in pod_promises.PROMISES:
            self.run(f"{promise.__name__} ({name})", promise, objects)


def write(folder, program, name, objects):
    """Writes objects for other tools."""
    file = folder / program.replace(" ", "-") / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(objects, allow_unicode=True))


def sorted_objects(objects):
    """Returns objects in one order, whatever program has rendered them."""
    return sorted(objects, key=lambda item: (item["kind"], item["metadata"]["name"]))


def same(objects, others):
    """Checks that two programs have rendered the same."""
    assert sorted_objects(objects) == sorted_objects(others), "the programs render different objects"


def check_kustomizations(checks, folder, kubectls):
    names = sorted(path.parent.name for path in KUSTOMIZATIONS.glob("*/kustomization.yaml"))
    assert names == ["api", "base", "init", "sidecar"], names
    for name in names:
        rendered = {
            kubectl.name: checks.run(f"{kubectl.name} renders {name}", kubectl.render, name) for kubectl in kubectls
        }
        for program, objects in rendered.items():
            write(folder, program, name, objects or [])
            checks.pods(f"{program} {name}", objects)
        # Old and new releases compute the digest in the name of a ConfigMap in different ways.
        texts = [json.dumps(sorted_objects(objects)) for objects in rendered.values()]
        plain = [json.loads(re.sub(r"docwharf-nginx-[a-z0-9]{10}", "docwharf-nginx", text)) for text in texts]
        checks.run(f"both render {name}", same, *plain)
    for kubectl in kubectls:
        missed = violations.unnoticed(pod_promises.PROMISES, kubectl.render("base"), kubectl.render("sidecar"))
        assert not missed, f"no check notices: {missed}"


def check_chart(checks, folder, helms):
    sets = sorted(VALUES.glob("*.yaml"))
    assert len(sets) >= 12
    for file in sets:
        values = file.read_text()
        rendered = {
            helm.name: checks.run(f"{helm.name} renders {file.stem}", helm.render, values) or [] for helm in helms
        }
        for program, objects in rendered.items():
            write(folder, program, file.stem, objects)
            checks.pods(f"{program} {file.stem}", objects)
        checks.run(f"both render {file.stem}", same, *rendered.values())
        for helm in helms:
            checks.run(f"{helm.name} lints {file.stem}", helm.lint, values)
    for helm in helms:
        for promise in chart_promises.PROMISES:
            checks.run(f"{promise.__name__} ({helm.name})", promise, helm)


def main():
    folder, helm, *kubectls = sys.argv[1:]
    folder = pathlib.Path(folder)
    checks = Checks()
    check_kustomizations(checks, folder, [Kubectl(program) for program in kubectls])
    check_chart(checks, folder, [Helm3(helm), Helm4()])
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
