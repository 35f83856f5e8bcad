#!/usr/bin/env bash
# The operator's command for a bad release: activates the previous one.
set -euo pipefail
ln -sfn "$(ls -1d "$SITE"/releases/*/ | tail -n 2 | head -n 1)" "$SITE/current"
