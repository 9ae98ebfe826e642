#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# commits.sh: checks the subjects of all commits after the commit in hack/commits-since. A subject
# has the form "area: imperative", at most 72 columns and no semicolon. Merge commits are exempt.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.."
since=$(<hack/commits-since)
range=$since..HEAD
shallow=
if ! git cat-file -e "$since^{commit}" 2>/dev/null; then
  if [ "$(git rev-parse --is-shallow-repository)" != true ]; then
    echo "commits: hack/commits-since: no commit $since in this repository" >&2
    exit 1
  fi
  range=HEAD
  shallow=true # its oldest commits have no parents, so --no-merges does not skip merges
  echo "commits: this shallow clone has no commit $since: checking the $(git rev-list --count HEAD) commits that it has" >&2
fi

# problem prints the problems with a commit subject.
problem() {
  local subject=$1 word
  if [[ ! $subject =~ ^[a-z0-9][a-z0-9/._,\ -]*:\ ([a-z][a-z-]*) ]]; then
    echo 'is not "area: imperative"'
    return
  fi
  word=${BASH_REMATCH[1]}
  case $word in
    embed | exceed | feed | need | proceed | seed | shed | speed | succeed | bring | ping | string | focus | *ss | alias) ;;
    *ed | *ing | *s) echo "\"$word\" is not an imperative" ;;
  esac
  [ ${#subject} -le 72 ] || echo "has ${#subject} columns, at most 72 are allowed"
  [[ $subject != *';'* ]] || echo 'has a semicolon: make two commits'
}

failed=0
while read -r commit subject; do
  if [ "$shallow" ] && [[ $subject == 'Merge '* ]]; then continue; fi
  while read -r found; do
    echo "commits: $commit \"$subject\": $found" >&2
    failed=1
  done < <(problem "$subject")
done < <(git log --no-merges --format='%h %s' "$range")
exit "$failed"
