"""Converts all HTML files below a folder with html2text. Prints the seconds and the bytes of Markdown."""

import pathlib
import sys
import time

import html2text

paths = sorted(pathlib.Path(sys.argv[1]).rglob("*.html"))
pages = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
start = time.perf_counter()
size = 0
for page in pages:
    converter = html2text.HTML2Text()
    # Lines are not wrapped, which would cost it more.
    converter.body_width = 0
    size += len(converter.handle(page).encode())
print(time.perf_counter() - start, size)
