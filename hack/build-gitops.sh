#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# build-gitops.sh DIRECTORY: builds the GitOps tools that the tests use into DIRECTORY. These are
# Flux's kustomize-controller, the CustomResourceDefinitions that it needs, and an agent that uses
# Argo CD's engine.
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

# The required module source-controller/api contains only the Go types. The
# CustomResourceDefinitions are in the module source-controller.
source=github.com/fluxcd/source-controller
source=$source@$(go list -m -f '{{.Version}}' $source/api)
go mod download "$source"
crds=$(go list -m -f '{{.Dir}}' "$source")/config/crd/bases
install -D -m 644 -t "$out/flux-source" "$crds"/*.yaml
