#!/usr/bin/env bash
# check.sh BIN MODULE...: checks the format of all Go files, the subjects of commits, the English, and
# whether the generated files are current, then go.mod and the code of each module. BIN has golangci-lint
# and the generators.
set -euo pipefail

bin=$1
shift
cd "$(dirname "$0")/.."
git ls-files -z '*.go' | xargs -0 gofmt -d -l | awk '{ print } END { exit NR > 0 }'
hack/commits.sh
echo 'checking the English of pages, messages and comments ...'
hack/prose.sh --check
echo 'checking generated files ...'
hack/generate.sh "$bin" --check
for module in "$@"; do
  echo "checking module $module ..."
  (
    cd "$module"
    go mod tidy -diff
    packages=$(go list ./...)
    [ -z "$packages" ] || "$bin/golangci-lint" run --allow-parallel-runners --config "$OLDPWD/.golangci.yml" ./...
  )
done
