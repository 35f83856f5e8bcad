"""What holds for every rendered pod and the objects around it. Each function is a promise: it fails with an
AssertionError that says what is wrong."""

import re

from objects import container, containers, is_server, of_kind, only, pod, pod_template, port_number

SERVED_PORT = 8080
ADMIN_PORT = 8081
# Objects that the operator makes before the installation.
OPERATORS_OBJECTS = {"docwharf-link", "docwharf-api", "docs-api", "docs-link", "docs-of-last-year"}
SECRET_VARIABLES = {"DOCWHARF_API_KEY", "DOCWHARF_STATIC_EXPORT__BUNDLE_URL"}


def pods_run_as_another_user_than_root(objects):
    context = pod(objects)["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context.get("runAsUser", 65532) >= 10000, "a user of the node could have the same number"
    for item in containers(objects):
        assert "runAsUser" not in item["securityContext"], "the pod alone names the user, so that one place changes it"


def pods_have_no_service_account_token(objects):
    assert pod(objects)["automountServiceAccountToken"] is False


def pods_have_no_service_links(objects):
    assert pod(objects)["enableServiceLinks"] is False


def pods_have_the_default_seccomp_profile(objects):
    assert pod(objects)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("seccompProfile" in item["securityContext"] for item in containers(objects))


def containers_have_a_read_only_root(objects):
    for item in containers(objects):
        assert item["securityContext"]["readOnlyRootFilesystem"] is True, item["name"]


def containers_have_no_capabilities(objects):
    for item in containers(objects):
        context = item["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}, item["name"]
        assert context["allowPrivilegeEscalation"] is False, item["name"]
        assert "privileged" not in context, item["name"]
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert key not in pod(objects), key


def containers_have_requests_and_a_memory_limit(objects):
    for item in containers(objects):
        assert {"cpu", "memory"} <= item["resources"]["requests"].keys(), item["name"]
        assert "memory" in item["resources"]["limits"], item["name"]


def empty_directories_have_a_size_limit(objects):
    for volume in pod(objects)["volumes"]:
        if "emptyDir" in volume:
            assert volume["emptyDir"].get("sizeLimit"), volume["name"]


def volumes_are_of_kinds_that_restricted_namespaces_permit(objects):
    for volume in pod(objects)["volumes"]:
        kind = only([key for key in volume if key != "name"])
        assert kind in {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}, volume["name"]


def images_have_a_tag_or_digest_and_never_latest(objects):
    for item in containers(objects):
        name = item["image"].rsplit("/", 1)[-1]
        assert ":" in name and not name.endswith(":latest"), item["image"]


def server_pods_are_probed_at_the_administrative_port(objects):
    if not is_server(objects):
        return
    server = container(objects, "docwharf")
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        request = server[probe]["httpGet"]
        assert (request["path"], port_number(server, request["port"])) == (path, ADMIN_PORT), probe


def sidecars_are_native_and_started_when_the_first_version_is_published(objects):
    if is_server(objects):
        return
    first = only(pod(objects)["initContainers"])
    if first["args"] == ["sync"]:
        assert "restartPolicy" not in first, "nginx would start before the sync has ended"
        return
    assert first["restartPolicy"] == "Always" and first["args"] == ["run", "--no-serve"]
    request = first["startupProbe"]["httpGet"]
    assert (request["path"], port_number(first, request["port"])) == ("/readyz", ADMIN_PORT)
    assert "readinessProbe" not in first, "nginx serves the published files also while docwharf does not answer"


def nginx_reads_the_published_files_and_nothing_else_of_docwharf(objects):
    if is_server(objects):
        return
    mounts = {mount["name"]: mount for mount in container(objects, "nginx")["volumeMounts"]}
    assert mounts.keys() == {"www", "nginx", "tmp"}, mounts.keys()
    assert mounts["www"]["readOnly"] is True
    publisher = {mount["name"]: mount for mount in only(pod(objects)["initContainers"])["volumeMounts"]}
    assert publisher["www"]["mountPath"] == mounts["www"]["mountPath"]
    variables = {item["name"]: item.get("value") for item in container(objects, "docwharf")["env"]}
    assert variables["DOCWHARF_PUBLISH__DIRECTORY"] == mounts["www"]["mountPath"]


def files_that_variables_name_are_mounted(objects):
    for item in containers(objects):
        mounts = [mount["mountPath"] + "/" for mount in item["volumeMounts"]]
        for variable in item.get("env", []):
            if variable["name"].endswith(("_FILE", "__PATH", "__DIRECTORY")):
                path = variable["value"] + "/"
                assert any(path.startswith(mount) for mount in mounts), f"{variable['name']}: {path}"


def a_volume_has_one_replica_that_ends_before_the_next_one_starts(objects):
    deployment = only(of_kind(objects, "Deployment"))["spec"]
    if any("persistentVolumeClaim" in volume for volume in pod(objects)["volumes"]):
        assert deployment["replicas"] == 1
        assert deployment["strategy"] == {"type": "Recreate"}
    else:
        assert deployment["strategy"]["type"] != "Recreate", "a new pod could start before the old one ends"


def secrets_are_files_and_never_environment_variables(objects):
    for item in containers(objects):
        assert "envFrom" not in item, item["name"]
        for variable in item.get("env", []):
            assert variable["name"] not in SECRET_VARIABLES, variable["name"]
            assert "secretKeyRef" not in variable.get("valueFrom", {}), variable["name"]
            assert "://bundles." not in variable.get("value", ""), variable["name"]


def mounted_secrets_follow_changes_and_only_the_group_can_read_them(objects):
    secrets = {volume["name"] for volume in pod(objects)["volumes"] if "secret" in volume}
    assert secrets, "neither a link nor a key"
    for volume in pod(objects)["volumes"]:
        if "secret" in volume:
            assert volume["secret"]["defaultMode"] == 0o440, volume["name"]
    for item in containers(objects):
        for mount in item["volumeMounts"]:
            if mount["name"] in secrets:
                assert mount["readOnly"] is True, mount["name"]
                assert "subPath" not in mount, "the kubelet never updates a mounted part of a volume"


def pod_templates_do_not_depend_on_the_content_of_secrets(objects):
    annotations = pod_template(objects)["metadata"].get("annotations", {})
    assert not [key for key in annotations if "checksum" in key], annotations


def environment_variables_are_unique(objects):
    for item in containers(objects):
        names = [variable["name"] for variable in item.get("env", [])]
        assert len(names) == len(set(names)), names


def network_policies_select_the_pods(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        labels = policy["spec"]["podSelector"]["matchLabels"]
        assert labels.items() <= pod_template(objects)["metadata"]["labels"].items()
        assert sorted(policy["spec"]["policyTypes"]) == ["Egress", "Ingress"]


def network_policies_admit_readers_and_the_monitoring_namespace_only(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        readers, monitoring = policy["spec"]["ingress"]
        assert readers == {"ports": [{"protocol": "TCP", "port": SERVED_PORT}]}, readers
        assert monitoring["ports"] == [{"protocol": "TCP", "port": ADMIN_PORT}], monitoring
        source = only(monitoring["from"])
        assert source.keys() == {"namespaceSelector"}, source
        assert source["namespaceSelector"]["matchLabels"].keys() == {"kubernetes.io/metadata.name"}, source


def network_policies_let_out_to_name_servers_and_443_only(objects):
    for policy in of_kind(objects, "NetworkPolicy"):
        to_anywhere = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
        ports = {(port["protocol"], port["port"]) for rule in to_anywhere for port in rule["ports"]}
        names = {("UDP", 53), ("TCP", 53)}
        # OpenShift's name servers answer on 5353, and policies see the port of the pod, not that of the Service.
        assert ports - {("UDP", 5353), ("TCP", 5353)} == names | {("TCP", 443)}, ports
        assert (("UDP", 5353) in ports) == ("runAsUser" not in pod(objects)["securityContext"]), ports


def services_lead_to_the_site_and_never_to_the_administrative_port(objects):
    service = only(of_kind(objects, "Service"))["spec"]
    assert service["selector"].items() <= pod_template(objects)["metadata"]["labels"].items()
    target = only(service["ports"])["targetPort"]
    server = container(objects, "docwharf" if is_server(objects) else "nginx")
    assert port_number(server, target) == SERVED_PORT


def deployments_select_their_pods(objects):
    selector = only(of_kind(objects, "Deployment"))["spec"]["selector"]["matchLabels"]
    assert selector.items() <= pod_template(objects)["metadata"]["labels"].items()


def volumes_name_objects_that_exist(objects):
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    for volume in pod(objects)["volumes"]:
        for kind, key, field in (
            ("Secret", "secret", "secretName"),
            ("ConfigMap", "configMap", "name"),
            ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
        ):
            if key in volume:
                name = volume[key][field]
                assert (kind, name) in names or name in OPERATORS_OBJECTS, f"there is no {kind} {name}"
    mounted = {mount["name"] for item in containers(objects) for mount in item["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod(objects)["volumes"]}, "a volume is missing or not used"


def names_are_legal(objects):
    for item in objects:
        name = item["metadata"]["name"]
        assert len(name) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name), name
        for key, value in item["metadata"].get("labels", {}).items():
            assert len(value) <= 63 and re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", value), key
    # A Service is a name in the DNS.
    service = only(of_kind(objects, "Service"))["metadata"]["name"]
    assert len(service) <= 63 and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", service), service
    # Pods have five and ten characters more. Host names are cut at 63.
    assert len(only(of_kind(objects, "Deployment"))["metadata"]["name"]) <= 53


PROMISES = [value for value in list(globals().values()) if callable(value) and value.__module__ == __name__]
