#!/usr/bin/env bash
# The same script as the start command of a container: fetches the site, then serves it.
set -euo pipefail
"$(dirname "$0")/loop.sh"
exec python3 -u -m http.server 0 --bind 127.0.0.1 --directory "$SITE/current"
