#!/usr/bin/env bash
# The same loop as a container's start command: bring the site, then serve it.
set -euo pipefail
"$(dirname "$0")/loop.sh"
exec python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$SITE/current"
