#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# build.sh DIRECTORY LDFLAGS SERVER_LDFLAGS: builds the commands into DIRECTORY. SERVER_LDFLAGS
# apply to the commands in cmd/kube-apiserver.
set -euo pipefail

bin=$(realpath -m "$1")
ldflags=$2
server_ldflags=$3
cd "$(dirname "$0")/.."
hack=$PWD/hack
mkdir -p "$bin"
go build -ldflags "$ldflags" -o "$bin/" ./cmd/kubectl-tenant ./cmd/kubetenant-webhook ./cmd/kubetenant-gateway
install -m 755 cmd/kubectl-tenant/kubectl_complete-tenant "$bin/"

cd cmd/kube-apiserver
echo 'building kube-apiserver and kubectl (about 5 minutes and 3 GB of memory the first time) ...'
go build -v -ldflags "$server_ldflags" -o "$bin/" . ./kubetenant-local ./kubectl 2>&1 | awk -f "$hack/progress.awk"
go build -ldflags "$server_ldflags" -o "$bin/vanilla-kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
