#!/usr/bin/env bash
# A host that records its readers against the vendor's description of `searches` and `views` (analytics.openapi.json):
# no status that is not in it, no answer that breaks a schema, no key let through. schemathesis-agent.sh DOCWHARF
# FOLDER; FOLDER is emptied. `.ci/extra origin` calls it.
set -euo pipefail
here=$(dirname "$(realpath "$0")") docwharf=$(realpath "$1") folder=$(realpath -m "$2")
rm -rf "$folder"
mkdir -p "$folder/site"
echo '<title>Home</title><p>home' >"$folder/site/index.html"
tar -C "$folder/site" -czf "$folder/bundle.tar.gz" .
key=0123456789abcdef-schemathesis
(umask 077 && echo "$key" >"$folder/keys")
cat >"$folder/docwharf.toml" <<'TOML'
[store]
path = "store"
[server]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[analytics]
projectId = "docs"
keyFile = "keys"
TOML
export DOCWHARF_CONFIG=$folder/docwharf.toml
"$docwharf" import "$folder/bundle.tar.gz" >"$folder/import"
"$docwharf" run >"$folder/address" 2>"$folder/log" &
trap 'kill %1 2>/dev/null || true; wait 2>/dev/null || true' EXIT
# The daemon prints the address of the site; the status has that of the admin listener.
status() { "$docwharf" status --json 2>/dev/null | python3 -c 'import json,sys; print(json.load(sys.stdin)["daemon"]["'"$1"'"][0])' 2>/dev/null; }
until site=$(status addresses) && admin=$(status admin); do sleep 0.1; done
# Something to report.
for path in / /none; do curl -sS -o "$folder/page" -A 'Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0' "${site%/}$path"; done
curl -sSf -H 'Content-Type: application/json' "${site%/}/_docwharf/events" \
    -d '{"events":[{"type":"search","id":"00000000000000aa","query":"moat","results":1},{"type":"click","id":"00000000000000aa","page":"/"}]}'
until "$docwharf" analytics searches --local --format json | grep -q moat; do sleep 0.1; done
cat >"$folder/schemathesis.toml" <<'TOML'
[[operations]]
include-path-regex = "/analytics/"
parameters = { "path.projectId" = "docs" }
[checks]
# A range that ends before its start is refused with 400. All queries together may be a hundred in an hour (429).
positive_data_acceptance.expected-statuses = ["2xx", "400", "429"]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "429"]
TOML
# The control socket has no budget, so all queries are answered there. It asks for no key.
python3 - "$folder/store/control.sock" >"$folder/forwarder" <<'PYTHON' &
import socket, sys, threading
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client, _ = listener.accept()
    daemon = socket.socket(socket.AF_UNIX)
    daemon.connect(sys.argv[1])
    for pair in [(client, daemon), (daemon, client)]:
        threading.Thread(target=copy, args=pair, daemon=True).start()
PYTHON
trap 'kill %1 %2 2>/dev/null || true; wait 2>/dev/null || true' EXIT
until [ -s "$folder/forwarder" ]; do sleep 0.1; done
cd "$folder"
check() { # check DESCRIPTION URL MORE…
    schemathesis --config-file "$folder/schemathesis.toml" run "$1" --url "$2" \
        --checks all --max-examples 40 --no-color "${@:3}"
}
python3 -c 'import json,sys; doc = json.load(sys.stdin); del doc["security"]; json.dump(doc, sys.stdout)' \
    <"$here/analytics.openapi.json" >"$folder/without-key.json"
check "$folder/without-key.json" "http://127.0.0.1:$(cat "$folder/forwarder")"
check "$here/analytics.openapi.json" "${admin%/}" --header "Authorization: Bearer $key"
if grep -i 'panic' "$folder/log"; then exit 1; fi
