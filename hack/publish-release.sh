#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# publish-release.sh DIST VERSION: creates the GitHub release for the tag VERSION. It uploads the
# files in DIST, which "make release" has written. It needs gh, and a token with permission to
# create releases.
set -euo pipefail

dist=$1 version=$2
if [[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "publish-release: VERSION must be a version such as v0.1.0, not \"$version\"" >&2
  exit 1
fi
for file in RELEASE_NOTES.md checksums.txt checksums.txt.sigstore.json; do
  if [ ! -s "$dist/$file" ]; then
    echo "publish-release: $dist has no $file: run make release VERSION=$version" >&2
    exit 1
  fi
done
if ! grep -qF "kubectl-tenant_${version}_" "$dist/checksums.txt"; then
  echo "publish-release: $dist is not a release of $version: run make release VERSION=$version" >&2
  exit 1
fi

prerelease=()
[[ $version != *-* ]] || prerelease=(--prerelease)
mapfile -t files < <(find "$dist" -maxdepth 1 -type f | LC_ALL=C sort)
# Without --verify-tag, gh would create a missing tag.
gh release create "$version" --verify-tag --title "kubetenant $version" \
  --notes-file "$dist/RELEASE_NOTES.md" "${prerelease[@]}" "${files[@]}"
