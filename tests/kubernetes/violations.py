"""Wrong changes to rendered objects, each of which the promises must notice."""

import copy

from objects import container, of_kind, only, pod, pod_template


def _deployment(objects):
    return only(of_kind(objects, "Deployment"))["spec"]


def _policy(objects):
    return only(of_kind(objects, "NetworkPolicy"))["spec"]


def _volume(objects, name):
    return only([volume for volume in pod(objects)["volumes"] if volume["name"] == name])


def _mount(objects, of_container, name):
    return only([mount for mount in container(objects, of_container)["volumeMounts"] if mount["name"] == name])


# The name of the promise that is broken, and the change. The objects are those of the kustomization `sidecar`.
SIDECAR = [
    ("pods_run_as_another_user_than_root", lambda o: pod(o)["securityContext"].update(runAsNonRoot=False)),
    ("pods_run_as_another_user_than_root", lambda o: pod(o)["securityContext"].update(runAsUser=0)),
    ("pods_run_as_another_user_than_root", lambda o: container(o, "nginx")["securityContext"].update(runAsUser=0)),
    ("pods_have_no_service_account_token", lambda o: pod(o).update(automountServiceAccountToken=True)),
    ("pods_have_no_service_links", lambda o: pod(o).update(enableServiceLinks=True)),
    (
        "pods_have_the_default_seccomp_profile",
        lambda o: pod(o)["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    ),
    (
        "containers_have_a_read_only_root",
        lambda o: container(o, "docwharf")["securityContext"].update(readOnlyRootFilesystem=False),
    ),
    (
        "containers_have_no_capabilities",
        lambda o: container(o, "nginx")["securityContext"]["capabilities"].update(add=["NET_BIND_SERVICE"]),
    ),
    (
        "containers_have_no_capabilities",
        lambda o: container(o, "nginx")["securityContext"].update(allowPrivilegeEscalation=True),
    ),
    ("containers_have_no_capabilities", lambda o: pod(o).update(hostNetwork=True)),
    (
        "containers_have_requests_and_a_memory_limit",
        lambda o: container(o, "docwharf")["resources"]["limits"].pop("memory"),
    ),
    (
        "containers_have_requests_and_a_memory_limit",
        lambda o: container(o, "nginx")["resources"].update(requests={"cpu": 1}),
    ),
    ("empty_directories_have_a_size_limit", lambda o: _volume(o, "www")["emptyDir"].clear()),
    (
        "volumes_are_of_kinds_that_restricted_namespaces_permit",
        lambda o: pod(o)["volumes"].append({"name": "host", "hostPath": {"path": "/"}}),
    ),
    ("images_have_a_tag_or_digest_and_never_latest", lambda o: container(o, "nginx").update(image="nginx:latest")),
    ("images_have_a_tag_or_digest_and_never_latest", lambda o: container(o, "nginx").update(image="host:5000/nginx")),
    (
        "sidecars_are_native_and_started_when_the_first_version_is_published",
        lambda o: container(o, "docwharf")["startupProbe"]["httpGet"].update(path="/livez"),
    ),
    (
        "sidecars_are_native_and_started_when_the_first_version_is_published",
        lambda o: container(o, "docwharf").update(args=["run"]),
    ),
    (
        "sidecars_are_native_and_started_when_the_first_version_is_published",
        lambda o: container(o, "docwharf").pop("restartPolicy"),
    ),
    (
        "sidecars_are_native_and_started_when_the_first_version_is_published",
        lambda o: container(o, "docwharf").update(args=["sync"]),
    ),
    (
        "nginx_reads_the_published_files_and_nothing_else_of_docwharf",
        lambda o: container(o, "docwharf")["env"][1].update(value="/data"),
    ),
    ("files_that_variables_name_are_mounted", lambda o: container(o, "docwharf")["env"][-1].update(value="/link")),
    (
        "nginx_reads_the_published_files_and_nothing_else_of_docwharf",
        lambda o: _mount(o, "nginx", "www").pop("readOnly"),
    ),
    (
        "nginx_reads_the_published_files_and_nothing_else_of_docwharf",
        lambda o: container(o, "nginx")["volumeMounts"].append({"name": "link", "mountPath": "/link"}),
    ),
    ("a_volume_has_one_replica_that_ends_before_the_next_one_starts", lambda o: _deployment(o).update(replicas=2)),
    (
        "a_volume_has_one_replica_that_ends_before_the_next_one_starts",
        lambda o: _deployment(o).update(strategy={"type": "RollingUpdate"}),
    ),
    (
        "secrets_are_files_and_never_environment_variables",
        lambda o: container(o, "docwharf")["env"].append(
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "docwharf-link", "key": "bundleUrl"}}}
        ),
    ),
    (
        "secrets_are_files_and_never_environment_variables",
        lambda o: container(o, "docwharf").update(envFrom=[{"secretRef": {"name": "docwharf-link"}}]),
    ),
    (
        "secrets_are_files_and_never_environment_variables",
        lambda o: container(o, "docwharf")["env"].append({"name": "DOCWHARF_API_KEY", "value": "key"}),
    ),
    (
        "mounted_secrets_follow_changes_and_only_the_group_can_read_them",
        lambda o: _mount(o, "docwharf", "link").update(subPath="bundleUrl"),
    ),
    (
        "mounted_secrets_follow_changes_and_only_the_group_can_read_them",
        lambda o: _volume(o, "link")["secret"].pop("defaultMode"),
    ),
    (
        "pod_templates_do_not_depend_on_the_content_of_secrets",
        lambda o: pod_template(o)["metadata"].update(annotations={"checksum/secret": "0"}),
    ),
    (
        "environment_variables_are_unique",
        lambda o: container(o, "docwharf")["env"].append({"name": "DOCWHARF_STORE__PATH", "value": "/x"}),
    ),
    ("network_policies_select_the_pods", lambda o: _policy(o)["podSelector"].update(matchLabels={"app": "other"})),
    ("network_policies_select_the_pods", lambda o: _policy(o).update(policyTypes=["Ingress"])),
    (
        "network_policies_admit_readers_and_the_monitoring_namespace_only",
        lambda o: _policy(o)["ingress"][1].pop("from"),
    ),
    (
        "network_policies_admit_readers_and_the_monitoring_namespace_only",
        lambda o: _policy(o)["ingress"][0]["ports"].append({"protocol": "TCP", "port": 8081}),
    ),
    ("network_policies_let_out_to_name_servers_and_443_only", lambda o: _policy(o)["egress"][1].update(ports=[])),
    (
        "network_policies_let_out_to_name_servers_and_443_only",
        lambda o: _policy(o)["egress"][1]["ports"].append({"protocol": "TCP", "port": 80}),
    ),
    (
        "services_lead_to_the_site_and_never_to_the_administrative_port",
        lambda o: only(of_kind(o, "Service"))["spec"]["ports"].append({"port": 8081, "targetPort": 8081}),
    ),
    (
        "services_lead_to_the_site_and_never_to_the_administrative_port",
        lambda o: only(of_kind(o, "Service"))["spec"].update(selector={"app": "other"}),
    ),
    ("deployments_select_their_pods", lambda o: _deployment(o)["selector"].update(matchLabels={"app": "other"})),
    ("volumes_name_objects_that_exist", lambda o: _volume(o, "link")["secret"].update(secretName="other")),
    (
        "volumes_name_objects_that_exist",
        lambda o: pod(o)["volumes"].append({"name": "unused", "emptyDir": {"sizeLimit": "1Mi"}}),
    ),
    ("names_are_legal", lambda o: only(of_kind(o, "Service"))["metadata"].update(name="1docs")),
    ("names_are_legal", lambda o: only(of_kind(o, "ConfigMap"))["metadata"].update(name="docs-")),
]

# The same for those of the kustomization `base`.
SERVER = [
    ("server_pods_are_probed_at_the_administrative_port", lambda o: container(o, "docwharf").pop("readinessProbe")),
    (
        "server_pods_are_probed_at_the_administrative_port",
        lambda o: container(o, "docwharf")["livenessProbe"]["httpGet"].update(path="/readyz"),
    ),
    (
        "server_pods_are_probed_at_the_administrative_port",
        lambda o: container(o, "docwharf")["startupProbe"]["httpGet"].update(port="http"),
    ),
]


def unnoticed(promises, server, sidecar):
    """Returns the promises that accept a wrong change to correct objects, and those for which there is no change."""
    by_name = {promise.__name__: promise for promise in promises}
    missed = sorted(by_name.keys() - {name for name, _ in SERVER + SIDECAR})
    for objects, changes in ((server, SERVER), (sidecar, SIDECAR)):
        for number, (name, change) in enumerate(changes):
            changed = copy.deepcopy(objects)
            change(changed)
            try:
                by_name[name](changed)
            except (AssertionError, KeyError, ValueError):
                continue
            missed.append(f"{name} (change {number})")
    return missed
