#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# check.sh BIN MODULE...: checks the size of files, the format of Go files, the license headers, the
# commit subjects, the GitHub workflows, the English and the generated files. Then it checks go.mod and the code of
# each module. BIN contains actionlint, addlicense, golangci-lint and the generators.
set -euo pipefail

bin=$1
shift
cd "$(dirname "$0")/.."
large=$(git ls-files -z | xargs -0 bash -c 'find "$@" -maxdepth 0 -size +1M' find)
[ -z "$large" ] || { echo "larger than 1 MiB, such as a binary: $large" >&2; exit 1; }
git ls-files -z '*.go' | xargs -0 gofmt -d -l | awk '{ print } END { exit NR > 0 }'
hack/commits.sh
hack/licenses.sh "$bin" --check
"$bin/actionlint" -shellcheck= -pyflakes=
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
