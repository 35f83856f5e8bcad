#!/usr/bin/env bash
# An origin against its own description: no status that is not in it, no answer that breaks a schema, no wrong method or key let
# through. schemathesis.sh DOCWHARF FOLDER; FOLDER is emptied. `.ci/extra origin` calls it.
set -euo pipefail
docwharf=$(realpath "$1") folder=$(realpath -m "$2")
rm -rf "$folder"
mkdir -p "$folder/site"
echo '<p>home' >"$folder/site/index.html"
git -C "$folder" init -q -b main repo
echo '<p>repo' >"$folder/repo/index.html"
git -C "$folder/repo" add -A
git -C "$folder/repo" -c user.name=Ada -c user.email=ada@example.org commit -q -m first
cat >"$folder/origin.toml" <<'TOML'
[server]
listen = ["127.0.0.1:0"]
[store]
path = "state"
[[organization]]
id = "acme"
[[organization.project]]
id = "docs"
domain = "docs.acme.example"
directory = "site"
[[organization.project]]
id = "git"
domain = "git.acme.example"
git = "repo"
TOML
key=$("$docwharf" origin key create acme all --config "$folder/origin.toml")
"$docwharf" origin --config "$folder/origin.toml" >"$folder/address" 2>"$folder/log" &
trap 'kill %1 2>/dev/null || true; wait 2>/dev/null || true' EXIT
until [ -s "$folder/address" ]; do sleep 0.1; done
url=$(head -n 1 "$folder/address")
# What is asked for must exist; ids of jobs and deployments follow from the links in the description.
cat >"$folder/schemathesis.toml" <<TOML
[[operations]]
include-path-regex = "/analytics/"
parameters = { "path.projectId" = "docs" }
[[operations]]
include-path-regex = "/project/preview/"
parameters = { "path.projectId" = "git" }
[[operations]]
include-path = "/v1/static-export/jobs"
parameters = { "body.domain" = "docs.acme.example" }
[checks]
# A domain or a branch that nobody has is refused with 400, as the API's description says.
positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409", "429"]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "408", "409", "413", "429"]
TOML
# It keeps a cache where it is started.
cd "$folder"
schemathesis --config-file "$folder/schemathesis.toml" run "${url}openapi.json" \
    --header "Authorization: Bearer $key" --checks all --max-examples "${DOCWHARF_EXAMPLES:-50}" --no-color
if grep -i 'panic' "$folder/log"; then exit 1; fi
