#!/usr/bin/env bash
# Starts docwharf with a bundle, and lets the official clients use it.
#
# usage: run.sh PROGRAM BUNDLE PYTHON
set -euo pipefail
program=$(realpath "$1") bundle=$(realpath "$2") python=$3
folder=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
printf '[assistant]\nmcpPerMinute = 65535\n' >"$folder/config.toml"
"$program" serve "$bundle" --listen 127.0.0.1:0 --config "$folder/config.toml" >"$folder/address" &
server=$!
for _ in $(seq 300); do
    [ -s "$folder/address" ] && break
    sleep 0.1
done
url=$(head -n 1 "$folder/address")_docwharf/mcp
"$python" "$(dirname "$0")/client.py" "$url" "$program" "$bundle"
node "$(dirname "$0")/clients.cjs" "$url" "$program" "$bundle"
