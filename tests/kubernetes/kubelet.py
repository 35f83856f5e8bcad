"""Runs the containers of a rendered pod as the kubelet does: volumes with the group of the pod, Secrets whose files are
replaced all at once, probes, native sidecars before the other containers. Its network is that of this process, which
should have one of its own. It needs root."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from objects import container, of_kind, pod, port_number

# A runtime on a host with little permission needs limits that it may set.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
DEADLINE_SECONDS = 60


def podman(*arguments, check=True):
    """Runs podman, and returns what it printed."""
    command = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f"podman {' '.join(arguments[:3])}…: {done.stderr.strip()} {done.stdout.strip()}")
    return done


def wait_until(description, condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {description}"
        time.sleep(0.1)


def get(address, timeout=5):
    """Returns the status and the text of a response, or 0 without a connection."""
    try:
        with urllib.request.urlopen(address, timeout=timeout) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError:
        return 0, ""


def bytes_of(quantity):
    """Returns the number of bytes of a quantity such as 64Mi."""
    number = quantity.rstrip("KMGi")
    return int(number) * {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[quantity.removeprefix(number)]


def rendered_data(objects):
    """Returns the content of the Secrets and ConfigMaps among rendered objects: name → key → text."""
    found = {}
    for item in of_kind(objects, "Secret"):
        found[item["metadata"]["name"]] = {key: base64.b64decode(text).decode() for key, text in item["data"].items()}
    for item in of_kind(objects, "ConfigMap"):
        found[item["metadata"]["name"]] = item["data"]
    return found


class Pod:
    """A pod whose volumes are folders below `folder`. `secrets` are those of the operator: name → key → text. `images`
    are what runs instead of an image: docwharf and nginx by the name of the container."""

    def __init__(self, objects, folder, secrets, images, user=None, group=None):
        self.objects, self.folder, self.images = objects, pathlib.Path(folder), images
        self.spec = pod(objects)
        context = self.spec["securityContext"]
        # Where the platform chooses: a high number, the group root, and a group for the volumes.
        self.user = user or context.get("runAsUser", 1000770000)
        self.group = group if group is not None else context.get("runAsGroup", 0)
        self.volume_group = context.get("fsGroup", 1000770000)
        self.name = f"docwharf-pod-{os.getpid()}"
        self.running = []
        self.revision = 0
        self.data = {**secrets, **rendered_data(objects)}
        for volume in self.spec["volumes"]:
            self._make_volume(volume)

    def _make_volume(self, volume):
        path = self.folder / volume["name"]
        if "secret" in volume or "configMap" in volume:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            self._write_files(volume)
            return
        if "emptyDir" in volume:
            shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 0, self.volume_group)
        path.chmod(0o2777 if "emptyDir" in volume else 0o2775)
        if "persistentVolumeClaim" in volume:
            # The root of an ext4 file system.
            (path / "lost+found").mkdir(mode=0o700, exist_ok=True)
            self._give_to_group(path)

    def _give_to_group(self, root):
        """Gives a volume to the group, as the kubelet does when its root does not belong to it."""
        for folder, _, files in os.walk(root):
            for path in [folder, *(os.path.join(folder, file) for file in files)]:
                if not os.path.islink(path):
                    mode = os.stat(path).st_mode & 0o7777
                    os.chown(path, -1, self.volume_group)
                    os.chmod(path, mode | (0o2770 if os.path.isdir(path) else 0o660))

    def _write_files(self, volume):
        """Writes the files of a Secret or ConfigMap into a new folder, and replaces the link to it."""
        source = volume.get("secret") or volume["configMap"]
        data = self.data[source.get("secretName") or source["name"]]
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        path = self.folder / volume["name"]
        self.revision += 1
        content = path / f"..revision_{self.revision}"
        content.mkdir()
        for item in items:
            file = content / item["path"]
            file.write_text(data[item["key"]])
            os.chown(file, 0, self.volume_group)
            file.chmod(source.get("defaultMode", 0o644) | 0o440)
            if not (path / item["path"]).is_symlink():
                (path / item["path"]).symlink_to(f"..data/{item['path']}")
        old = os.readlink(path / "..data") if (path / "..data").is_symlink() else None
        (path / "..data_tmp").symlink_to(content.name)
        (path / "..data_tmp").rename(path / "..data")
        if old:
            shutil.rmtree(path / old)

    def update(self, name, data):
        """Replaces the content of a Secret in all volumes that have it."""
        self.data[name] = data
        for volume in self.spec["volumes"]:
            if volume.get("secret", {}).get("secretName") == name:
                self._write_files(volume)

    def _arguments(self, item):
        context = item["securityContext"]
        assert context["capabilities"]["drop"] == ["ALL"] and context["readOnlyRootFilesystem"]
        arguments = [
            *LIMITS,
            "--network=host",
            "--read-only",
            "--read-only-tmpfs=false",
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
            f"--user={self.user}:{self.group}",
            f"--group-add={self.volume_group}",
            f"--memory={bytes_of(item['resources']['limits']['memory'])}",
        ]
        # The kubelet writes /etc/hosts of each container.
        for alias in self.spec.get("hostAliases", []):
            arguments += [f"--add-host={name}:{alias['ip']}" for name in alias["hostnames"]]
        for variable in item.get("env", []):
            arguments += ["--env", f"{variable['name']}={variable.get('value', '')}"]
        for mount in item["volumeMounts"]:
            mode = ":ro" if mount.get("readOnly") else ""
            arguments += ["--volume", f"{self.folder / mount['name']}:{mount['mountPath']}{mode}"]
        if "command" in item:
            arguments += ["--entrypoint", json.dumps(item["command"])]
        return arguments

    def run_once(self, item, command):
        """Runs a command instead of a container's own, with its volumes and variables, and returns its result."""
        return podman("run", "--rm", *self._arguments(item), self.images[item["name"]], *command, check=False)

    def _start(self, item):
        name = f"{self.name}-{item['name']}"
        podman(
            "run", "--detach", "--name", name, *self._arguments(item), self.images[item["name"]], *item.get("args", [])
        )
        self.running.append(name)
        wait_until(
            f"the startup probe of {item['name']}", lambda: self._probe(item, "startupProbe") or self._assert_runs(name)
        )

    def _assert_runs(self, name):
        state = json.loads(podman("inspect", name).stdout)[0]["State"]
        assert state["Running"], f"{name} has ended with {state['ExitCode']}: {self.log(name)}"
        return False

    def _probe(self, item, probe):
        request = item[probe]["httpGet"]
        return get(f"http://127.0.0.1:{port_number(item, request['port'])}{request['path']}")[0] == 200

    def start(self):
        """Starts the init containers, one after another, then the others."""
        for item in self.spec.get("initContainers", []):
            if item.get("restartPolicy") == "Always":
                self._start(item)
            else:
                done = self.run_once(item, item["args"])
                assert done.returncode == 0, f"{item['name']} has failed: {done.stderr}"
        for item in self.spec["containers"]:
            self._start(item)

    def is_ready(self):
        """Returns whether each readiness probe succeeds."""
        items = [item for item in self.spec["containers"] if "readinessProbe" in item]
        return all(self._probe(item, "readinessProbe") for item in items)

    def is_alive(self):
        """Returns whether each liveness probe succeeds."""
        items = self.spec["containers"] + [
            item for item in self.spec.get("initContainers", []) if "livenessProbe" in item
        ]
        return all(self._probe(item, "livenessProbe") for item in items)

    def execute(self, of_container, *command):
        """Runs a command in a running container, as `kubectl exec` does."""
        return podman("exec", f"{self.name}-{of_container}", *command, check=False)

    def processes(self):
        """Returns the process ids of the containers: they change when one is restarted."""
        return [json.loads(podman("inspect", name).stdout)[0]["State"]["Pid"] for name in self.running]

    def can_write(self, of_container, path):
        """Returns whether a container has a path mounted for writing."""
        item = container(self.objects, of_container)
        process = self.processes()[self.running.index(f"{self.name}-{item['name']}")]
        lines = pathlib.Path(f"/proc/{process}/mounts").read_text().splitlines()
        options = [line.split()[3].split(",") for line in lines if line.split()[1] == path]
        assert options, f"{path} is not mounted"
        return "rw" in options[-1]

    def log(self, name=None):
        """Returns what the containers have written."""
        return "".join(
            done.stdout + done.stderr
            for done in (podman("logs", item, check=False) for item in ([name] if name else self.running))
        )

    def stop(self):
        """Stops the containers in the order of the kubelet, sidecars last, and returns their exit codes."""
        codes = {}
        for name in reversed(self.running):
            podman("stop", "--time", str(self.spec.get("terminationGracePeriodSeconds", 30)), name)
            codes[name.removeprefix(f"{self.name}-")] = json.loads(podman("inspect", name).stdout)[0]["State"][
                "ExitCode"
            ]
        self.remove()
        return codes

    def remove(self):
        """Removes the containers, also when something has failed."""
        for name in self.running:
            podman("rm", "--force", name, check=False)
        self.running = []
