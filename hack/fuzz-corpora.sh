#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# fuzz-corpora.sh COUNT: copies about COUNT inputs for each fuzz target into testdata/fuzz of the
# target's package. It selects them evenly by size from the inputs that fuzzing has found on this
# machine. Then it prints the coverage of each target.
set -euo pipefail

cd "$(dirname "$0")/.."
cache=$(go env GOCACHE)/fuzz
targets=$(hack/fuzz-targets.sh)
while read -r -u 3 package target; do
  found=$cache/$package/$target
  [ -d "$found" ] || continue
  kept=$(go list -f '{{.Dir}}' "$package")/testdata/fuzz/$target
  mkdir -p "$kept"
  every=$(($(find "$found" -type f | wc -l) / $1 + 1))
  find "$found" -type f -printf '%s %p\n' | sort -rn |
    awk -v every="$every" 'NR % every == 0 { print $2 }' | xargs -r cp -t "$kept"
  go test -run "^$target\$" -cover "$package"
done 3<<<"$targets"
