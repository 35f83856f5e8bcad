#!/usr/bin/env python3
"""Writes an OCI archive of the static programs, laid out as the last stage of the Dockerfile.

Settings of the image (user, environment, ports, health check, labels) are read from that stage, so that an image that
`docker build` makes and this one cannot differ. The same input gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import re
import shlex
import sys
import tarfile
import time

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dockerfile", type=pathlib.Path, required=True)
    parser.add_argument("--certificates", type=pathlib.Path, required=True, help="root certificates, as PEM")
    parser.add_argument("--program", metavar="ARCH=FILE", action="append", required=True)
    parser.add_argument("--argument", metavar="NAME=VALUE", action="append", default=[], help="as docker --build-arg")
    parser.add_argument("--created", type=int, required=True, help="seconds since 1970")
    parser.add_argument("--name", required=True, help="name of the image, without a tag")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()

    arguments = dict(argument.split("=", 1) for argument in options.argument)
    settings = last_stage(options.dockerfile.read_text(), arguments)
    annotations = dict(settings["Labels"])
    layout = Layout(options.created)
    certificates = layout.add_layer(certificate_files(settings, options.certificates.read_bytes()))
    manifests = []
    for program in options.program:
        arch, path = program.split("=", 1)
        layers = [certificates, layout.add_layer(program_files(settings, pathlib.Path(path).read_bytes()))]
        manifests.append(layout.add_image(arch, settings, layers, annotations))
    version = arguments["VERSION"]
    index = layout.add_json(INDEX, {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": annotations,
    })
    # The first is what podman and skopeo call the image, the second what Docker and containerd do.
    index["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"{options.name}:{version}",
    }
    layout.write(index, options.output)
    return 0


def last_stage(dockerfile, arguments):
    """Returns the configuration of the image that the last stage of a Dockerfile describes.

    Only the instructions that docwharf's Dockerfile has are known; another one is an error, so that none is lost.
    """
    lines = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^\s*#.*\n", "", dockerfile)).splitlines()
    instructions = [line.split(None, 1) for line in lines if line.strip()]
    starts = [number for number, (name, *_) in enumerate(instructions) if name == "FROM"]
    stage = instructions[starts[-1]:]
    if stage[0][1].strip() != "scratch":
        sys.exit(f"{stage[0][1]}: the last stage of the Dockerfile must begin with nothing (FROM scratch)")
    settings = {"Env": [], "Labels": {}, "ExposedPorts": {}, "Volumes": {}}
    values = {}
    for name, text in stage[1:]:
        if name == "ARG":
            key, _, default = text.partition("=")
            values[key] = arguments.get(key, default)
        elif name == "LABEL":
            settings["Labels"].update(assignments(text, values))
        elif name == "ENV":
            settings["Env"] += [f"{key}={value}" for key, value in assignments(text, values).items()]
        elif name == "USER":
            settings["User"] = text.strip()
        elif name == "VOLUME":
            settings["Volumes"].update({path: {} for path in text.split()})
        elif name == "EXPOSE":
            settings["ExposedPorts"].update({f"{port}/tcp": {} for port in text.split()})
        elif name == "ENTRYPOINT":
            settings["Entrypoint"] = json.loads(text)
        elif name == "CMD":
            settings["Cmd"] = json.loads(text)
        elif name == "HEALTHCHECK":
            settings["Healthcheck"] = health_check(text)
        elif name != "COPY":
            sys.exit(f"{name}: this instruction of the Dockerfile's last stage is not known here")
    # What a build that was told nothing says is not worth a label.
    settings["Labels"] = {key: value for key, value in settings["Labels"].items() if value != "unknown"}
    return settings


def assignments(text, values):
    pairs = dict(word.split("=", 1) for word in shlex.split(text))
    return {key: re.sub(r"\$(\w+)", lambda match: values[match[1]], value) for key, value in pairs.items()}


def health_check(text):
    options, command = text.split("CMD", 1)
    seconds = dict(re.findall(r"--([a-z-]+)=(\d+)s", options))
    names = {"interval": "Interval", "timeout": "Timeout", "start-period": "StartPeriod"}
    durations = {names[key]: int(value) * 1_000_000_000 for key, value in seconds.items()}
    return {"Test": ["CMD", *json.loads(command)], **durations}


def certificate_files(settings, certificates):
    environment = dict(variable.split("=", 1) for variable in settings["Env"])
    path = environment["SSL_CERT_FILE"].lstrip("/")
    folders = [str(folder) for folder in pathlib.PurePath(path).parents][-2::-1]
    return [(folder, 0o755, None) for folder in folders] + [(path, 0o644, certificates)]


def program_files(settings, program):
    """The volume has mode 1777: a new one takes its mode from there, and any user must be able to write to it."""
    volumes = [(path.lstrip("/"), 0o1777, None) for path in settings["Volumes"]]
    return volumes + [(settings["Entrypoint"][0].lstrip("/"), 0o755, program)]


class Layout:
    """An OCI image layout: content by digest."""

    def __init__(self, created):
        self.created = created
        self.blobs = {}
        self.uncompressed = {}

    def add(self, media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, media_type, value):
        return self.add(media_type, json.dumps(value, separators=(",", ":"), sort_keys=True).encode())

    def add_layer(self, files):
        """`files` are (path, mode, content), with no content for a folder."""
        tree = tar(files, self.created)
        compressed = io.BytesIO()
        with gzip.GzipFile(fileobj=compressed, mode="wb", compresslevel=9, mtime=0, filename="") as stream:
            stream.write(tree)
        descriptor = self.add(LAYER, compressed.getvalue())
        self.uncompressed[descriptor["digest"]] = f"sha256:{hashlib.sha256(tree).hexdigest()}"
        return descriptor

    def add_image(self, arch, settings, layers, annotations):
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.created))
        config = self.add_json(CONFIG, {
            "architecture": arch,
            "os": "linux",
            "created": created,
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [self.uncompressed[layer["digest"]] for layer in layers]},
            "history": [
                {"created": created, "created_by": "root certificates of Mozilla"},
                {"created": created, "created_by": "docwharf"},
            ],
        })
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
            "annotations": {**annotations, "org.opencontainers.image.created": created},
        }
        return {**self.add_json(MANIFEST, manifest), "platform": {"architecture": arch, "os": "linux"}}

    def write(self, index, output):
        top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [index]}
        files = [("blobs", 0o755, None), ("blobs/sha256", 0o755, None)]
        files += [(f"blobs/sha256/{digest}", 0o644, content) for digest, content in sorted(self.blobs.items())]
        files.append(("index.json", 0o644, json.dumps(top, separators=(",", ":")).encode()))
        files.append(("oci-layout", 0o644, b'{"imageLayoutVersion":"1.0.0"}'))
        part = output.with_name(output.name + ".part")
        part.write_bytes(tar(files, self.created))
        part.replace(output)


def tar(files, modified):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, mode, content in files:
            entry = tarfile.TarInfo(path)
            entry.mode, entry.mtime = mode, modified
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


if __name__ == "__main__":
    sys.exit(main())
