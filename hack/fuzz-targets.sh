#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# fuzz-targets.sh: prints the package and the name of each fuzz target in the repository's root
# module.
set -euo pipefail

files='{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}
{{end}}'
cd "$(dirname "$0")/.."
go list -f "$files" ./... | while read -r package file; do
  [ -z "$file" ] || awk -v package="$package" -F '[ (]' '/^func Fuzz/ { print package, $2 }' "$file"
done
