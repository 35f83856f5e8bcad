#!/usr/bin/env bash
# What the operator types when the new release is bad: back to the one before it.
set -euo pipefail
ln -sfn "$(ls -1d "$SITE"/releases/*/ | tail -n 2 | head -n 1)" "$SITE/current"
