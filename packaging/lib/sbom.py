#!/usr/bin/env python3
"""Prints a CycloneDX file of cargo-cyclonedx without the time and the folder of its making.

sbom.py FILE FOLDER COMMIT
"""

import json
import pathlib
import sys

path, folder, commit = sys.argv[1:]
text = pathlib.Path(path).read_text()
# Crates of the workspace are identified by their folder.
document = json.loads(text.replace(f"path+file://{folder}", "path+file:///docwharf"))
document.pop("serialNumber", None)
metadata = document["metadata"]
metadata.pop("timestamp", None)
metadata.setdefault("properties", []).append({"name": "docwharf:commit", "value": commit})
printed = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)
if folder in printed:
    sys.exit(f"the file still names the folder {folder}")
print(printed)
