#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# licenses.sh BIN [--check]: adds the license header to each Go, shell, JavaScript and TypeScript
# file that has none, except testdata and generated files. With --check, it lists the files
# without a header, and fails if there are any. BIN contains addlicense.
set -euo pipefail

bin=$1
cd "$(dirname "$0")/.."
check=()
[ "${2:-}" != --check ] || check=(-check)
git ls-files -z -- '*.go' '*.sh' '*.js' '*.mjs' '*.ts' ':!**/testdata/**' |
  xargs -0 "$bin/addlicense" "${check[@]}" -s=only -l apache -c 'The kubetenant authors' -y ''
