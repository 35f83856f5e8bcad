#!/usr/bin/env python3
"""Prints the licences of all that is linked into docwharf: the crates, Rust's standard library, and musl's C library.

Texts that several of them share are printed once. Procedural macros and what only builds or tests need are not linked.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

NAMES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-_.].*)?", re.IGNORECASE)
RULE = "=" * 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", required=True)
    target = parser.parse_args().target
    packages = linked_packages(target)
    texts, used_by, without = {}, {}, []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        files = licence_files(pathlib.Path(package["manifest_path"]).parent)
        if not files:
            without.append(name)
        for text in files:
            texts.setdefault(normalized(text), text.strip())
            used_by.setdefault(normalized(text), []).append(name)
    print("docwharf contains these packages. Their licences and notices follow, each with the packages that have it.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or 'see below'}")
    print("Rust's standard library: MIT OR Apache-2.0")
    if "musl" in target:
        print("musl's C library: MIT")
    if without:
        print(f"\nWithout a licence file of their own: {', '.join(without)}")
    for key, text in texts.items():
        print(f"\n{RULE}\n{', '.join(sorted(set(used_by[key])))}\n\n{text}")
    if "musl" in target:
        print(f"\n{RULE}\nmusl's C library\n\n{musl_copyright()}")
    return 0


def linked_packages(target):
    """The packages of the program for `target` that are not its own, by name."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting, seen = [metadata["resolve"]["root"]], set()
    while waiting:
        identity = waiting.pop()
        is_macro = any("proc-macro" in target["kind"] for target in packages[identity]["targets"])
        if identity in seen or is_macro:
            continue
        seen.add(identity)
        for dependency in nodes[identity]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    linked = [packages[identity] for identity in seen if packages[identity]["source"]]
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def licence_files(folder):
    """The texts in the crate's folder and in those of the C code in it, each once."""
    paths = [path for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(pattern)]
    return [
        path.read_text(errors="replace")
        for path in sorted(paths)
        if path.is_file() and NAMES.fullmatch(path.name) and path.suffix not in (".rs", ".py", ".json", ".html")
    ]


def normalized(text):
    return " ".join(text.split()).casefold()


def musl_copyright():
    import ziglang  # pylint: disable=import-outside-toplevel # only the static program needs it

    path = pathlib.Path(ziglang.__file__).parent / "lib/libc/musl/COPYRIGHT"
    return path.read_text().strip()


if __name__ == "__main__":
    sys.exit(main())
