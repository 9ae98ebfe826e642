#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# fuzz.sh TIME: runs each fuzz target for TIME, then prints the target's coverage of its package.
set -euo pipefail

cd "$(dirname "$0")/.."
targets=$(hack/fuzz-targets.sh)
while read -r -u 3 package target; do
  echo "$package $target"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package"
  go test -run "^$target\$" -cover "$package"
done 3<<<"$targets"
