#!/usr/bin/env python3
"""Prints the list of dependencies that cargo-auditable has put into a program, as JSON: dependency_list.py PROGRAM."""

import struct
import sys
import zlib

SECTION = b".dep-v0"


def main():
    with open(sys.argv[1], "rb") as program:
        content = program.read()
    # A 64-bit little-endian ELF file: both architectures are.
    if content[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"{sys.argv[1]}: not a 64-bit ELF program")
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", content, table + number * size) for number in range(count)]
    strings = sections[names][4]
    for name, _, _, _, offset, length in sections:
        if content.startswith(SECTION + b"\0", strings + name):
            print(zlib.decompress(content[offset:offset + length]).decode())
            return
    sys.exit(f"{sys.argv[1]}: no section {SECTION.decode()}")


if __name__ == "__main__":
    main()
