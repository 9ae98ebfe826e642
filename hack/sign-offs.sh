#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# sign-offs.sh BASE: checks that the author of each commit after BASE has signed it off, as CONTRIBUTING.md
# describes. Merge commits are exempt.
set -euo pipefail
base=$1
if ! git rev-parse --quiet --verify --end-of-options "$base^{commit}" >/dev/null; then
  echo "sign-offs: no commit $base in this repository: fetch it, or set BASE" >&2
  exit 1
fi

failed=0
while read -r commit; do
  author=$(git log -1 --format='%an <%ae>' "$commit")
  if ! git log -1 --format='%(trailers:key=Signed-off-by,valueonly)' "$commit" | grep -qxF -e "$author"; then
    echo "sign-offs: $(git log -1 --format='%h "%s"' "$commit"): no line \"Signed-off-by: $author\"" >&2
    failed=1
  fi
done < <(git rev-list --no-merges "$base..HEAD")
if [ "$failed" != 0 ]; then
  echo "sign-offs: read the file DCO, and then run: git rebase --signoff $base" >&2
fi
exit "$failed"
