#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# build-gitops.sh DIRECTORY: builds the GitOps tools of the tests into DIRECTORY. They are Flux's
# kustomize-controller, the definitions of the kinds that it needs, and an agent on top of Argo CD's
# engine.
set -euo pipefail

mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/gitops"
go build -C argo-agent -o "$out/argo-agent" .

cd kustomize-controller
controller=github.com/fluxcd/kustomize-controller
go build -o "$out/kustomize-controller" $controller
crds=$(go list -m -f '{{.Dir}}' $controller)/config/crd/bases
install -D -m 644 -t "$out/flux-kustomize" "$crds"/*.yaml

# The definitions are in source-controller's module, the Go types in source-controller/api.
source=github.com/fluxcd/source-controller
source=$source@$(go list -m -f '{{.Version}}' $source/api)
go mod download "$source"
crds=$(go list -m -f '{{.Dir}}' "$source")/config/crd/bases
install -D -m 644 -t "$out/flux-source" "$crds"/*.yaml
