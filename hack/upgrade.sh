#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# upgrade.sh COMMIT DIRECTORY LDFLAGS SERVER_LDFLAGS: builds the commands of an earlier commit
# into DIRECTORY/bin, from a clone in DIRECTORY/src. It does nothing if they are already built
# with the same flags.
set -euo pipefail

commit=$(git rev-parse --verify "$1^{commit}")
directory=$(realpath -m "$2")
if [ "$(cat "$directory/built" 2>/dev/null)" = "$commit $3 $4" ]; then
  exit 0
fi
rm -rf "$directory"
mkdir -p "$directory"
git clone -q --no-checkout . "$directory/src"
git -C "$directory/src" checkout -q "$commit"
"$directory/src/hack/build.sh" "$directory/bin" "$3" "$4"
echo "$commit $3 $4" >"$directory/built"
