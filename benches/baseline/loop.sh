#!/usr/bin/env bash
# The script that operators write without docwharf: start an export, wait for it, download, unpack, replace the symlink.
# cron runs it, and a web server serves $SITE/current. It is a good script of its kind, because docwharf is compared
# with it: it stops at the first error, also inside pipes, unpacks into a separate folder, and switches with one rename.
set -euo pipefail
# From a file such as /etc/docs.env: the API's URL and key, the domain, and the folder of the site.
: "${API_URL:?}" "${API_KEY:?}" "${DOMAIN:?}" "${SITE:?}"
auth="Authorization: Bearer $API_KEY"

job=$(curl -fsS -X POST "$API_URL/static-export/jobs" -H "$auth" -H 'Content-Type: application/json' \
    -d "{\"domain\": \"$DOMAIN\"}" | jq -r .jobId)

status=queued
for _ in $(seq 60); do
    sleep 1
    status=$(curl -fsS "$API_URL/static-export/jobs/$job" -H "$auth" | jq -r .status)
    case $status in completed | failed) break ;; esac
done
if [ "$status" != completed ]; then
    echo "export $job is $status" >&2
    exit 1
fi

url=$(curl -fsS -X POST "$API_URL/static-export/jobs/$job/bundle" -H "$auth" | jq -r .bundleUrl)
release=$SITE/releases/$(date +%Y%m%d%H%M%S)
mkdir -p "$release"
curl -fsSL -o "$release.tar.gz" "$url"
tar xzf "$release.tar.gz" -C "$release"
rm "$release.tar.gz"
ln -sfn "$release" "$SITE/current"

# Five releases stay for rollbacks.
ls -1d "$SITE"/releases/*/ | head -n -5 | xargs -r rm -rf
