"""Values of the chart, and what each of them changes: a function that finds the place in the rendered objects, and what
must be there."""

from objects import container, of_kind, only, pod, pod_template

DIGEST = "sha256:" + "1" * 64
TOLERATION = {"key": "docs", "operator": "Exists"}
AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
EGRESS = {"ports": [{"protocol": "TCP", "port": 8443}]}
RESOURCES = {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "3Gi"}}
ALIASES = [{"ip": "10.20.0.5", "hostnames": ["mirror.internal"]}]
PATHS = [{"path": "/docs", "pathType": "Exact"}]
TLS = {"hosts": ["a.example"], "secretName": "a"}
VOLUME = {"name": "more", "emptyDir": {"sizeLimit": "1Mi"}}
MOUNT = {"name": "more", "mountPath": "/more"}


def _spec(kind):
    return lambda objects: only(of_kind(objects, kind))["spec"]


def _metadata(kind):
    return lambda objects: only(of_kind(objects, kind))["metadata"]


def _volume(name):
    return lambda objects: only([volume for volume in pod(objects)["volumes"] if volume["name"] == name])


def _docwharf(objects):
    return container(objects, "docwharf")


def _nginx(objects):
    return container(objects, "nginx")


def _nginx_lines(objects):
    lines = only(of_kind(objects, "ConfigMap"))["data"]["nginx.conf"].splitlines()
    return dict(line.strip().split(maxsplit=1) for line in lines if len(line.split()) > 1)


def _rule(objects):
    return _spec("Ingress")(objects)["rules"][0]


def _without_volume(**values):
    return {"persistence": {"enabled": False, **values}}


# Values besides a link; where the effect is; the key there; what it is.
EFFECTS = [
    ({"replicaCount": 0}, _spec("Deployment"), "replicas", 0),
    ({"image": {"tag": "1.10"}}, _docwharf, "image", "ghcr.io/docwharf/docwharf:1.10"),
    ({"image": {"tag": "1.10", "digest": DIGEST}}, _docwharf, "image", f"ghcr.io/docwharf/docwharf@{DIGEST}"),
    ({"image": {"repository": "r:1/d", "tag": "1"}}, _docwharf, "image", "r:1/d:1"),
    ({"image": {"pullPolicy": "Never"}}, _docwharf, "imagePullPolicy", "Never"),
    ({"mode": "sidecar", "nginx": {"image": {"tag": "2"}}}, _nginx, "image", "docker.io/nginxinc/nginx-unprivileged:2"),
    ({"mode": "sidecar", "nginx": {"image": {"repository": "n", "digest": DIGEST}}}, _nginx, "image", f"n@{DIGEST}"),
    ({"mode": "sidecar", "nginx": {"image": {"pullPolicy": "Always"}}}, _nginx, "imagePullPolicy", "Always"),
    ({"mode": "sidecar", "nginx": {"resources": RESOURCES}}, _nginx, "resources", RESOURCES),
    ({"mode": "sidecar", "nginx": {"listen": "[::]:8080"}}, _nginx_lines, "listen", "[::]:8080;"),
    ({"mode": "sidecar", "nginx": {"sizeLimit": "9Gi"}}, _volume("www"), "emptyDir", {"sizeLimit": "9Gi"}),
    ({"mode": "sidecar", "resources": RESOURCES}, _docwharf, "resources", RESOURCES),
    ({"imagePullSecrets": [{"name": "a"}]}, pod, "imagePullSecrets", [{"name": "a"}]),
    (_without_volume(size="7Gi"), _volume("store"), "emptyDir", {"sizeLimit": "7Gi"}),
    ({"persistence": {"size": "7Gi"}}, _spec("PersistentVolumeClaim"), "resources", {"requests": {"storage": "7Gi"}}),
    ({"persistence": {"storageClassName": "fast"}}, _spec("PersistentVolumeClaim"), "storageClassName", "fast"),
    ({"persistence": {"existingClaim": "old"}}, _volume("store"), "persistentVolumeClaim", {"claimName": "old"}),
    ({"service": {"type": "NodePort"}}, _spec("Service"), "type", "NodePort"),
    ({"service": {"port": 81}}, _spec("Service"), "ports", [{"name": "http", "port": 81, "targetPort": "http"}]),
    ({"service": {"annotations": {"a": "1"}}}, _metadata("Service"), "annotations", {"a": "1"}),
    ({"ingress": {"enabled": True, "className": "nginx"}}, _spec("Ingress"), "ingressClassName", "nginx"),
    ({"ingress": {"enabled": True, "annotations": {"a": "1"}}}, _metadata("Ingress"), "annotations", {"a": "1"}),
    ({"ingress": {"enabled": True, "tls": [TLS]}}, _spec("Ingress"), "tls", [TLS]),
    ({"ingress": {"enabled": True, "hosts": [{"host": "*.a.example", "paths": PATHS}]}}, _rule, "host", "*.a.example"),
    (
        {"ingress": {"enabled": True, "hosts": [{"host": "a.example", "paths": PATHS}]}},
        _rule,
        "http",
        {"paths": [{**PATHS[0], "backend": {"service": {"name": "docs-docwharf", "port": {"name": "http"}}}}]},
    ),
    (
        {"networkPolicy": {"monitoringNamespace": "watch"}},
        lambda objects: _spec("NetworkPolicy")(objects)["ingress"][1]["from"][0]["namespaceSelector"],
        "matchLabels",
        {"kubernetes.io/metadata.name": "watch"},
    ),
    (
        {"networkPolicy": {"extraEgress": [EGRESS]}},
        lambda objects: {"last": _spec("NetworkPolicy")(objects)["egress"][-1]},
        "last",
        EGRESS,
    ),
    ({"podAnnotations": {"a": "1"}}, lambda objects: pod_template(objects)["metadata"], "annotations", {"a": "1"}),
    ({"podLabels": {"team": "docs"}}, lambda objects: pod_template(objects)["metadata"]["labels"], "team", "docs"),
    ({"nodeSelector": {"a": "1"}}, pod, "nodeSelector", {"a": "1"}),
    ({"tolerations": [TOLERATION]}, pod, "tolerations", [TOLERATION]),
    ({"affinity": AFFINITY}, pod, "affinity", AFFINITY),
    ({"hostAliases": ALIASES}, pod, "hostAliases", ALIASES),
    ({"extraVolumes": [VOLUME]}, _volume("more"), "emptyDir", VOLUME["emptyDir"]),
    ({"extraVolumeMounts": [MOUNT]}, lambda objects: {"last": _docwharf(objects)["volumeMounts"][-1]}, "last", MOUNT),
    (
        {"extraEnv": [{"name": "HTTPS_PROXY", "value": "{{ .x }}"}]},
        lambda objects: {item["name"]: item.get("value") for item in _docwharf(objects)["env"]},
        "HTTPS_PROXY",
        "{{ .x }}",
    ),
    (
        {"extraObjects": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{{ .x }}"}}]},
        _metadata("Namespace"),
        "name",
        "{{ .x }}",
    ),
    ({"nameOverride": "handbook"}, _metadata("Service"), "name", "docs-handbook"),
    ({"fullnameOverride": "handbook"}, _metadata("Service"), "name", "handbook"),
]

# Values whose effects have promises of their own.
ELSEWHERE = {
    "staticExport.enabled", "staticExport.bundleUrl", "staticExport.version", "mode", "api.baseUrl", "api.domain",
    "api.projectId", "api.existingSecret", "api.secretKey", "config", "persistence.enabled", "ingress.enabled",
    "networkPolicy.enabled", "openshift",
}  # fmt: skip
