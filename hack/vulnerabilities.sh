#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# vulnerabilities.sh BIN MODULE...: checks each module for known vulnerabilities that its code
# calls. BIN contains govulncheck, which reads the database at https://vuln.go.dev, or at GOVULNDB
# if it is set.
set -euo pipefail

bin=$1
shift
cd "$(dirname "$0")/.."
failed=0
for module in "$@"; do
  packages=$(cd "$module" && go list ./...)
  [ -n "$packages" ] || continue
  echo "checking module $module ..."
  (cd "$module" && "$bin/govulncheck" ${GOVULNDB:+-db "$GOVULNDB"} -test ./...) || failed=1
done
exit "$failed"
