#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# install-promtool.sh FILE: extracts promtool from the Debian package prometheus to FILE. It does
# not install the package, because the installation would start a server. It needs root only to
# update the package lists.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
  echo "There is no apt-get here. Install promtool of Prometheus as $1" >&2
  exit 1
fi
echo 'installing promtool ...'
mkdir -p "$(dirname "$1")"
file=$(realpath "$1")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
if ! apt-get download -qq prometheus 2>/dev/null; then
  if [ "$(id -u)" != 0 ]; then
    echo "apt-get download prometheus failed. Run as root: apt-get update" >&2
    exit 1
  fi
  apt-get update -qq
  apt-get download -qq prometheus
fi
dpkg -x prometheus_*.deb .
install -m 755 usr/bin/promtool "$file"
