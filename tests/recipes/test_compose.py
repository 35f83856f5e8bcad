"""deploy/compose.yaml, run by Docker Compose (through the API of Podman) and by podman-compose."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from fixture import IMAGE, ROOT

TOOLS = pathlib.Path(os.environ["DOCWHARF_COMPOSE"])
DEADLINE_SECONDS = 90
DOMAIN = "docs.acme.example"
KEY = "compose-test-key"
# The management API of these tests is a service of its own, in the network that Compose makes.
OVERRIDE = """
services:
  docwharf:
    environment:
      DOCWHARF_SYNC__PROBE: http://origin:8090/sites/docs.acme.example/sitemap.xml
      DOCWHARF_SYNC__INTERVAL: 1s
  origin:
    image: ${DOCWHARF_IMAGE}
    command:
      [origin, --site, docs.acme.example=/site, --key-file, /run/secrets/api-key, --listen, "0.0.0.0:8090"]
    secrets: [api-key]
    user: 65532:65532
    read_only: true
    volumes: ["./site:/site:ro"]
"""


def podman(*arguments):
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if done.returncode:
        raise RuntimeError(f"podman {arguments}: {done.stderr}")
    return done.stdout


def page():
    """Returns the page that the service serves at the port of the file, or None."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080/", timeout=5) as response:
            return response.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def wait_for(condition, description):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out: {description}")
        time.sleep(0.1)
    return value


class Compose(unittest.TestCase):
    """The tests run in a network namespace, so port 8080 is free, and the engine's rules do not concern the host."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        shutil.copy(ROOT / "deploy" / "compose.yaml", self.folder)
        (self.folder / "override.yaml").write_text(OVERRIDE)
        (self.folder / ".env").write_text(
            f"DOCWHARF_IMAGE={IMAGE}\nDOCWHARF_API__BASE_URL=http://origin:8090/v1\nDOCWHARF_API__DOMAIN={DOMAIN}\n"
        )
        (self.folder / "site").mkdir()
        self.folder.chmod(0o755)
        self.write_site("one")
        key = self.folder / "api-key"
        key.write_text(f"{KEY}\n")
        os.chown(key, 65532, -1)
        key.chmod(0o400)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def write_site(self, edition):
        (self.folder / "site" / "index.html").write_text(f"<h1>Edition {edition}</h1>")

    def start_engine(self):
        """Starts the API of Podman, which Docker Compose uses like that of Docker."""
        socket = self.folder / "engine.sock"
        engine = subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{socket}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(engine.wait, 30)
        self.addCleanup(engine.terminate)
        wait_for(socket.exists, "the engine listens")
        self.environment["DOCKER_HOST"] = f"unix://{socket}"

    def compose(self, tool, *arguments, check=True):
        command = [str(TOOLS / tool), "-f", "compose.yaml", "-f", "override.yaml", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=DEADLINE_SECONDS)
        if check and done.returncode:
            self.fail(f"{command}: {done.stdout}{done.stderr}")
        return done

    def container(self, service):
        label = f"label=com.docker.compose.service={service}"
        (identity,) = podman("ps", "--all", "--quiet", "--filter", label).split()
        return identity

    def inspect(self, service):
        return json.loads(podman("inspect", self.container(service)))[0]

    def check_rights(self):
        text = json.dumps(state := self.inspect("docwharf"))
        self.assertNotIn(KEY, text)
        host = state["HostConfig"]
        self.assertEqual((True, 1 << 30, 512, "unless-stopped"),
                         (host["ReadonlyRootfs"], host["Memory"], host["PidsLimit"], host["RestartPolicy"]["Name"]))
        process = dict(line.split(":\t", 1) for line in
                       pathlib.Path(f"/proc/{state['State']['Pid']}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual({"65532"}, set(process["Uid"].split()))
        self.assertEqual("1", process["NoNewPrivs"])
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(0, int(process[capabilities], 16), capabilities)

    def check_life(self, tool):
        self.compose(tool, "up", "-d")
        self.addCleanup(self.compose, tool, "down", "--volumes", check=False)
        wait_for(lambda: "Edition one" in (page() or ""), "the site is served")
        self.check_rights()
        podman("healthcheck", "run", self.container("docwharf"))
        self.write_site("two")
        wait_for(lambda: "Edition two" in (page() or ""), "the new version is served")
        # The volume keeps the version: it is served by another container, while the management API is down.
        first = self.container("docwharf")
        self.compose(tool, "stop")
        self.assertEqual(0, self.inspect("docwharf")["State"]["ExitCode"])
        self.compose(tool, "down")
        self.assertEqual("", podman("ps", "--all", "--quiet"))
        self.write_site("three")
        self.compose(tool, "up", "-d", "docwharf")
        self.assertNotEqual(first, self.container("docwharf"))
        self.assertIn("Edition two", wait_for(page, "the version of the volume is served"))
        self.compose(tool, "down", "--volumes")
        self.assertEqual("", podman("volume", "ls", "--quiet", "--filter", "name=docwharf_data"))

    def test_docker_compose_serves_a_site_and_keeps_it_in_a_volume(self):
        self.start_engine()
        self.check_life("docker-compose")

    def test_podman_compose_serves_a_site_and_keeps_it_in_a_volume(self):
        self.check_life("podman-compose")

    def test_absent_settings_are_named_before_anything_starts(self):
        (self.folder / ".env").write_text(f"DOCWHARF_IMAGE={IMAGE}\nDOCWHARF_API__DOMAIN={DOMAIN}\n")
        for tool in ("docker-compose", "podman-compose"):
            done = self.compose(tool, "up", "-d", check=False)
            self.assertNotEqual(0, done.returncode, tool)
            self.assertIn("set it in .env", done.stdout + done.stderr, tool)
        self.assertEqual("", podman("ps", "--all", "--quiet"))

    def test_the_project_is_passed_on_only_if_it_is_set(self):
        text = self.compose("docker-compose", "config", "--format", "json").stdout
        environment = json.loads(text)["services"]["docwharf"]["environment"]
        self.assertIsNone(environment["DOCWHARF_API__PROJECT_ID"])
        with open(self.folder / ".env", "a") as file:
            file.write("DOCWHARF_API__PROJECT_ID=harbour\n")
        text = self.compose("docker-compose", "config", "--format", "json").stdout
        environment = json.loads(text)["services"]["docwharf"]["environment"]
        self.assertEqual("harbour", environment["DOCWHARF_API__PROJECT_ID"])


if __name__ == "__main__":
    unittest.main()
