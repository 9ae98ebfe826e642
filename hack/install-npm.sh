#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# install-npm.sh PACKAGE_JSON DIRECTORY: installs the npm packages that PACKAGE_JSON names into
# DIRECTORY, and a copy of PACKAGE_JSON as a sign of success.
set -euo pipefail

command -v npm >/dev/null || "$(dirname "$0")/install-apt.sh" npm
mkdir -p "$2"
cp "$1" "$2/package.json"
cd "$2"
npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }
