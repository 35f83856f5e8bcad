"""Finds objects, pods, containers and volumes in a list of rendered objects."""

import base64


def of_kind(objects, kind):
    """Returns the objects of a kind."""
    return [item for item in objects if item["kind"] == kind]


def only(items):
    """Returns the only item of a list."""
    assert len(items) == 1, f"{len(items)} items instead of one: {items}"
    return items[0]


def pod_template(objects):
    """Returns the pod template of the only Deployment."""
    return only(of_kind(objects, "Deployment"))["spec"]["template"]


def pod(objects):
    """Returns the pod specification of the only Deployment."""
    return pod_template(objects)["spec"]


def containers(objects):
    """Returns all containers of the pod, init containers first."""
    spec = pod(objects)
    return spec.get("initContainers", []) + spec["containers"]


def container(objects, name):
    """Returns the container with a name."""
    return only([item for item in containers(objects) if item["name"] == name])


def is_server(objects):
    """Returns whether docwharf serves the site itself."""
    return "initContainers" not in pod(objects)


def port_number(item, port):
    """Returns the number of a container's port that is given by name or number."""
    named = {entry["name"]: entry["containerPort"] for entry in item.get("ports", [])}
    return named.get(port, port)


def secret_data(objects):
    """Returns the decoded values of the only Secret."""
    secret = only(of_kind(objects, "Secret"))
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
