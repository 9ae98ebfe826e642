#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# registry-login.sh BIN REGISTRY: logs in to REGISTRY with the environment variables REGISTRY_USER
# and REGISTRY_PASSWORD, so that "make push-release" can upload to it. BIN contains cosign.
set -euo pipefail

host=${2%%/*}
if [ -z "$host" ] || [ -z "${REGISTRY_USER:-}" ] || [ -z "${REGISTRY_PASSWORD:-}" ]; then
  echo 'registry-login: set REGISTRY, REGISTRY_USER and REGISTRY_PASSWORD' >&2
  exit 1
fi
"$1/cosign" login "$host" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_PASSWORD"
