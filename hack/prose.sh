#!/usr/bin/env bash
# prose.sh [--check | --lower | PATH...]: checks the English of pages, messages and comments.
# "hack/prose.sh --help" describes it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x bin/vale ] || make --no-print-directory "$PWD/bin/vale" >&2
exec go run ./hack/prose "$@"
