#!/usr/bin/env bash
# build.sh DIRECTORY LDFLAGS: builds the commands into DIRECTORY. LDFLAGS apply to the commands of
# the server's module.
set -euo pipefail

cd "$(dirname "$0")/.."
hack=$PWD/hack
bin=$1
ldflags=$2
mkdir -p "$bin"
go build -ldflags '-s -w' -o "$bin/" ./cmd/kubectl-tenant ./cmd/kubetenant-webhook ./cmd/kubetenant-gateway
install -m 755 cmd/kubectl-tenant/kubectl_complete-tenant "$bin/"

cd cmd/kube-apiserver
echo 'building kube-apiserver and kubectl (about 5 minutes and 3 GB of memory the first time) ...'
go build -v -ldflags "$ldflags" -o "$bin/" . ./kubetenant-local ./kubectl 2>&1 | awk -f "$hack/progress.awk"
go build -ldflags "$ldflags" -o "$bin/vanilla-kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
