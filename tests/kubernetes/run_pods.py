"""Runs rendered pods with real containers: what the manifests say works, not only validates.

usage: run_pods.py FOLDER HELM KUBECTL PROGRAM, as root, in a network namespace of its own"""

import contextlib
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import zipfile

import yaml

from chart_promises import with_link
from kubelet import Pod, get, rendered_data, wait_until
from objects import container, of_kind, only
from render import Helm3, Kubectl

SITE = "http://127.0.0.1:8080"
PORTS = [("SERVER", 8080), ("ADMIN", 8081)]
IMAGES = {"docwharf": "localhost/docwharf-kubernetes", "nginx": "localhost/nginx-kubernetes"}
VALUES = pathlib.Path(__file__).resolve().parent / "values"
LINK = {"bundleUrl": "https://bundles.vendor.example/docs.zip?sig=1"}
OPERATORS_SECRETS = {
    "docwharf-link": LINK,
    "docs-link": LINK,
    "docwharf-api": {"api-key": "a-key"},
    "docs-api": {"api-key": "a-key", "key": "another-key"},
}
# A pod listens on all addresses, and its policy decides who reaches them.
PUBLIC_WARNING = "may read the site: if it is not public, set access.allow or access.header"


class Bundles(http.server.SimpleHTTPRequestHandler):
    """Serves bundles at links with the query `sig=NAME`; others have expired."""

    folder = None

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=self.folder)

    def do_GET(self):
        if "sig=expired" in self.path:
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, *_arguments):
        """The requests are of no interest."""


def serve_bundles(folder):
    """Makes two bundles and serves them. Returns the address."""
    for version in ("one", "two"):
        with zipfile.ZipFile(folder / f"{version}.zip", "w") as bundle:
            bundle.writestr("index.html", f"<p>home of {version}")
            bundle.writestr("guide.html", f"<p>guide of {version}")
    Bundles.folder = folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bundles)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def serves(version, path="/guide"):
    """Returns whether the pod serves a page of a version."""
    status, text = get(SITE + path)
    return status == 200 and f"of {version}" in text


class Runs:
    """The runs, each of which is a promise."""

    def __init__(self, folder, helm, kubectl, program):
        self.folder, self.helm, self.kubectl, self.program = folder, helm, kubectl, program
        (folder / "bundles").mkdir(parents=True)
        self.bundles = serve_bundles(folder / "bundles")

    def link(self, version, signature="1"):
        return f"{self.bundles}/{version}.zip?sig={signature}"

    def pod(self, objects, store="store", secrets=None, **options):
        return Pod(objects, self.folder / store, secrets or {}, IMAGES, **options)

    def check_new_link(self, pod, secret, data):
        """Replaces the link, and checks that the same processes serve the new version."""
        processes = pod.processes()
        pod.update(secret, data)
        wait_until("the version of the new link is served", lambda: serves("two"))
        assert pod.is_ready() and pod.is_alive() and pod.processes() == processes, "a container was restarted"
        assert "sig=" not in pod.log(), "the log has the link"

    def check_stop(self, pod):
        codes = pod.stop()
        assert set(codes.values()) == {0}, codes

    def the_configuration_of_every_rendered_pod_is_accepted(self):
        sets = {file.stem: self.helm.render(file.read_text()) for file in sorted(VALUES.glob("*.yaml"))}
        sets |= {name: self.kubectl.render(name) for name in ("base", "api", "sidecar", "init")}
        for name, objects in sets.items():
            pod = self.pod(objects, f"check/{name}", OPERATORS_SECRETS)
            checked = pod.run_once(container(objects, "docwharf"), ["config", "check"])
            assert checked.returncode == 0, f"{name}: {checked.stderr}"
            warnings = [line for line in checked.stderr.splitlines() if PUBLIC_WARNING not in line]
            assert not warnings, f"{name}: {warnings}"

    def a_chart_serves_and_follows_a_new_link_without_a_restart(self):
        both = [{"name": f"DOCWHARF_{name}__LISTEN", "value": f"0.0.0.0:{port},[::]:{port}"} for name, port in PORTS]
        objects = self.helm.render(with_link(self.link("one"), staticExport={"version": "1"}, extraEnv=both))
        upgraded = self.helm.render(with_link(self.link("two", "2"), staticExport={"version": "2"}), upgrade=True)
        pod = self.pod(objects)
        with running(pod):
            wait_until("the pod is ready", pod.is_ready)
            assert serves("one") and get(SITE + "/missing")[0] == 404
            assert get("http://[::1]:8080/guide")[0] == 200 and get("http://[::1]:8081/readyz")[0] == 200
            status = pod.execute("docwharf", "/docwharf", "status")
            assert status.returncode == 0 and "sig=" not in status.stdout, status
            secret = only(of_kind(upgraded, "Secret"))["metadata"]["name"]
            self.check_new_link(pod, secret, rendered_data(upgraded)[secret])
            # The link and its version arrive together: no label moves to the content of the other link.
            versions = json.loads(pod.execute("docwharf", "/docwharf", "versions", "--json").stdout)["versions"]
            sources = {version["receipts"][0]["source"]: version["labels"] for version in versions}
            assert sources == {f"{self.bundles}/one.zip": ["1"], f"{self.bundles}/two.zip": ["2"]}, sources
            self.check_stop(pod)

    def a_disabled_chart_serves_what_the_volume_has_for_another_user(self):
        objects = self.helm.render(
            with_link(self.link("one", "expired"), staticExport={"enabled": False}, openshift=True)
        )
        pod = self.pod(objects)
        with running(pod):
            wait_until("the pod is ready", pod.is_ready)
            assert serves("two")
            self.check_stop(pod)

    def a_pod_starts_with_its_volume_after_the_link_has_expired(self):
        pod = self.pod(self.helm.render(with_link(self.link("one", "expired"))))
        with running(pod):
            wait_until("the pod is ready", pod.is_ready)
            assert serves("two")
            self.check_stop(pod)

    def a_native_sidecar_publishes_before_nginx_starts(self):
        both = {"listen": "[::]:8080 ipv6only=off"}
        objects = self.helm.render(
            with_link(self.link("one"), mode="sidecar", nginx=both, persistence={"enabled": False})
        )
        upgraded = self.helm.render(with_link(self.link("two"), mode="sidecar"), upgrade=True)
        pod = self.pod(objects, "sidecar", user=54321, group=54321)
        with running(pod):
            assert pod.is_ready() and serves("one") and serves("one", "/") and serves("one", "/guide.html")
            assert not pod.can_write("nginx", "/srv/www") and pod.can_write("docwharf", "/srv/www")
            assert get(SITE + "/missing")[0] == 404 and get("http://[::1]:8080/guide")[0] == 200
            secret = only(of_kind(upgraded, "Secret"))["metadata"]["name"]
            self.check_new_link(pod, secret, rendered_data(upgraded)[secret])
            self.check_stop(pod)

    def each_kustomization_with_a_link_serves(self):
        for kustomization in ("base", "sidecar", "init"):
            secrets = {"docwharf-link": {"bundleUrl": self.link("one") + "\n"}}
            pod = self.pod(self.kubectl.render(kustomization), kustomization, secrets)
            with running(pod):
                wait_until(f"the pod of {kustomization} is ready", pod.is_ready)
                assert serves("one"), kustomization
                if kustomization != "init":
                    self.check_new_link(pod, "docwharf-link", {"bundleUrl": self.link("two")})
                self.check_stop(pod)

    def an_init_container_fails_without_its_source(self):
        secrets = {"docwharf-link": {"bundleUrl": self.link("one", "expired")}}
        pod = self.pod(self.kubectl.render("init"), "init-fails", secrets)
        item = container(pod.objects, "docwharf")
        assert pod.run_once(item, item["args"]).returncode == 4

    def a_pinned_init_container_publishes_what_the_volume_has(self):
        objects = self.kubectl.render("init")
        container(objects, "docwharf")["env"].append({"name": "DOCWHARF_STATIC_EXPORT__VERSION", "value": "1.10"})
        for signature in ("1", "expired"):
            secrets = {"docwharf-link": {"bundleUrl": self.link("one", signature)}}
            pod = self.pod(objects, "init-pinned", secrets)
            with running(pod):
                assert serves("one") and pod.is_ready()
                self.check_stop(pod)

    @contextlib.contextmanager
    def _origin(self):
        """Runs an origin at 127.0.0.1:8090. Its value is the key."""
        site, key = self.folder / "site", self.folder / "origin-key"
        site.mkdir(exist_ok=True)
        (site / "guide.html").write_text("<p>guide of the origin")
        (site / "index.html").write_text("<p>home of the origin")
        key.write_text("key-of-the-origin-0123456789")
        key.chmod(0o600)
        command = [
            self.program,
            "origin",
            "--site",
            f"docs.example.com={site}",
            "--key-file",
            str(key),
            "--listen",
            "127.0.0.1:8090",
        ]
        origin = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until("the origin answers", lambda: get("http://127.0.0.1:8090/livez")[0] == 200)
            yield key.read_text()
        finally:
            origin.kill()
            origin.wait()

    def the_api_exports_with_the_key_of_a_secret(self):
        with self._origin() as key:
            self._check_api(
                self.helm.render(
                    yaml.safe_dump(
                        {
                            "api": {
                                "baseUrl": "http://127.0.0.1:8090/v1",
                                "domain": "docs.example.com",
                                "existingSecret": "docs-api",
                                "secretKey": "key",
                            },
                            "config": "[sync]\nprobe = []\n",
                        }
                    )
                ),
                {"docs-api": {"key": key}},
            )
            objects = self.kubectl.render("api")
            for variable in container(objects, "docwharf")["env"]:
                if variable["name"] == "DOCWHARF_API__BASE_URL":
                    variable["value"] = "http://127.0.0.1:8090/v1"
            self._check_api(objects, {"docwharf-api": {"api-key": key}})

    def an_air_gapped_pod_knows_the_names_of_its_host_aliases(self):
        values = {
            "api": {
                "baseUrl": "http://api.internal:8090/v1",
                "domain": "docs.example.com",
                "existingSecret": "docs-api",
            },
            "config": '[deployment]\ntype = "air-gapped"\n[sync]\nprobe = []\n',
        }
        aliases = [{"ip": "127.0.0.1", "hostnames": ["mirror.internal", "api.internal"]}]
        with self._origin() as key:
            secrets = {"docs-api": {"api-key": key}}
            pod = self.pod(self.helm.render(yaml.safe_dump(values)), "unnamed", secrets)
            checked = pod.run_once(container(pod.objects, "docwharf"), ["config", "check"])
            assert checked.returncode == 2 and "api.internal" in checked.stderr, checked
            self._check_api(self.helm.render(yaml.safe_dump({**values, "hostAliases": aliases})), secrets, "named")

    def _check_api(self, objects, secrets, store=None):
        pod = self.pod(objects, store or f"api-{len(secrets)}-{next(iter(secrets))}", secrets)
        with running(pod):
            wait_until("the pod is ready", pod.is_ready)
            assert serves("the origin")
            assert "key-of-the-origin" not in pod.log()
            self.check_stop(pod)


@contextlib.contextmanager
def running(pod):
    """Starts a pod, and removes its containers at the end; the log of a failed one is printed."""
    try:
        pod.start()
        yield
    except BaseException:
        print(pod.log(), file=sys.stderr)
        raise
    finally:
        pod.remove()


def main():
    folder, helm, kubectl, program = sys.argv[1:]
    runs = Runs(pathlib.Path(folder), Helm3(helm), Kubectl(kubectl), program)
    promises = [name for name in vars(Runs) if name.startswith(("a_", "an_", "each_", "the_"))]
    for name in promises:
        getattr(runs, name)()
        print(f"ran: {name}")


if __name__ == "__main__":
    main()
