#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# generate.sh BIN [--check]: writes the deepcopy methods, the CustomResourceDefinitions, and the
# clients, listers and informers of the kinds in tenant/v1alpha1. It also writes the JSON schema
# of the configuration file, and the reference pages of the kinds and of the configuration file.
# BIN contains the generators. With --check, it writes to a temporary folder, and fails if a
# generated file differs from the file in the repository.
set -euo pipefail

bin=$(realpath "$1")
cd "$(dirname "$0")/.."
module=$(go list -m)
kinds=tenant/v1alpha1 definitions=deploy/chart/crds clients=tenant/client
configuration=config/v1alpha1 pages=docs/reference
generated=("$kinds/zz_generated.deepcopy.go" "$definitions" "$clients" "$configuration/schema.json"
  "$pages/kinds.md" "$pages/configuration.md")

if [ "${2:-}" = --check ]; then
  repository=$PWD
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  cp -r --parents go.mod go.sum config hack/reference internal/projection internal/yamlfile tenant "$copy"
  cd "$copy"
  mkdir -p "$pages"
fi

rm -rf "${generated[@]}"
"$bin/controller-gen" object crd "paths=./$kinds" "output:crd:dir=$definitions"
for file in "$definitions"/*; do
  mv "$file" "$definitions/${file##*_}" # without the prefix kubetenant.dev_
done
plural=(--plural-exceptions TenantMembers:TenantMembers)
"$bin/client-gen" "${plural[@]}" --input-base '' --input "$module/$kinds" --clientset-name versioned \
  --output-dir "$clients/clientset" --output-pkg "$module/$clients/clientset"
"$bin/lister-gen" "${plural[@]}" --output-dir "$clients/listers" --output-pkg "$module/$clients/listers" "./$kinds"
"$bin/informer-gen" "${plural[@]}" --output-dir "$clients/informers" --output-pkg "$module/$clients/informers" \
  --listers-package "$module/$clients/listers" \
  --versioned-clientset-package "$module/$clients/clientset/versioned" "./$kinds"

"$bin/config-schema" >"$configuration/schema.json"
page() { # FOLDER TITLE PAGE
  "$bin/crd-ref-docs" --log-level ERROR --renderer markdown --config hack/reference/config.yaml \
    --templates-dir hack/reference/templates --source-path "$1" --template-value "title=$2" --output-path "$pages/$3"
}
page "$kinds" Kinds kinds.md
page "$configuration" Configuration configuration.md

if [ -n "${repository:-}" ]; then
  for path in "${generated[@]}"; do
    diff -ru "$repository/$path" "$path" || {
      echo "$path is not current: run make generate" >&2
      exit 1
    }
  done
fi
