#!/usr/bin/env bash
# check.sh GOLANGCI_LINT MODULE...: checks the format of all Go files, then go.mod and the code of
# each module.
set -euo pipefail

linter=$1
shift
cd "$(dirname "$0")/.."
git ls-files -z '*.go' | xargs -0 gofmt -d -l | awk '{ print } END { exit NR > 0 }'
for module in "$@"; do
  echo "checking module $module ..."
  (
    cd "$module"
    go mod tidy -diff
    packages=$(go list ./...)
    [ -z "$packages" ] || "$linter" run --config "$OLDPWD/.golangci.yml" ./...
  )
done
