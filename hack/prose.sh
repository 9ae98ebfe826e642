#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# prose.sh [--check | --lower | PATH...]: checks the English of pages, messages and comments.
# "hack/prose.sh --help" describes it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x bin/vale ] || make --no-print-directory "$PWD/bin/vale" >&2
exec go run ./hack/prose "$@"
