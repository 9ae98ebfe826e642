#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# install-npm.sh PACKAGE_JSON DIRECTORY: installs the npm packages listed in PACKAGE_JSON into
# DIRECTORY. It copies PACKAGE_JSON to DIRECTORY/package.json, and deletes this copy if the
# installation fails.
set -euo pipefail

command -v npm >/dev/null || "$(dirname "$0")/install-apt.sh" npm
mkdir -p "$2"
cp "$1" "$2/package.json"
cd "$2"
npm install --no-audit --no-fund --no-package-lock --loglevel=error || { rm -f package.json; exit 1; }
