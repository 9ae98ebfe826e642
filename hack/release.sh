#!/usr/bin/env bash
# Copyright The kubetenant authors
# SPDX-License-Identifier: Apache-2.0

# release.sh build|verify|push|check|reproduce: implements the release targets of the Makefile.
# Variables:
#   VERSION            a release, such as v0.1.0. Without it, SNAPSHOT=1 builds v0.0.0-<commit>.
#   PLATFORMS          the platforms of a snapshot, separated by commas; defaults to all platforms
#   DIR                the folder of the release; defaults to dist
#   KEY                a file with a private cosign key. COSIGN_PASSWORD contains its password.
#   KEYLESS=1          sign as a workflow, or verify signatures by IDENTITY from ISSUER
#   PUBLIC             the public key for verify and push
#   UNSIGNED=1         build a release without signatures, or verify a snapshot without signatures
#   REGISTRY           the registry for push, for example registry.example.com/kubetenant
#   BUILDER INVOCATION the builder and the invocation in the provenance
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dir=${DIR:-dist}
tools=$root/bin
throw_away_key=
# Without VCS stamping, a clone without history builds the same bytes. The linker flags set the
# version and the commit.
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0 GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=

fail() {
  echo "release: $*" >&2
  exit 1
}

# version checks the working tree, and prints the version to build.
version() {
  local changes commit page
  changes=$(git status --porcelain && git ls-files --others --ignored --exclude-standard deploy)
  commit=$(git rev-parse HEAD)
  if [ -z "${VERSION:-}" ]; then
    [ "${SNAPSHOT:-}" = 1 ] || fail 'set VERSION=v0.1.0 for a release, or SNAPSHOT=1'
    [ -z "$changes" ] || [ -z "${KEY:-}${KEYLESS:-}" ] || [ -n "$throw_away_key" ] ||
      fail $'a signed snapshot must not contain changes that are not in its commit: commit or remove them\n'"$changes"
    [ -z "$changes" ] || echo 'release: the snapshot contains changes that are not in its commit' >&2
    echo "v0.0.0-${commit:0:12}"
    return
  fi
  [ -z "${SNAPSHOT:-}" ] || fail 'set either VERSION or SNAPSHOT'
  [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "VERSION=$VERSION must be a semantic version with v, for example v0.1.0"
  [ -z "$changes" ] || fail $'the tree has changes: commit or remove them\n'"$changes"
  [ "$(git rev-parse -q --verify "refs/tags/$VERSION^{commit}")" = "$commit" ] ||
    fail "HEAD does not have the tag $VERSION: create the tag first (git tag $VERSION), or check it out"
  for page in CHANGELOG.md docs/upgrade.md; do
    [[ $(grep -m 1 '^## ' "$page") == "## ${VERSION#v} - "* ]] ||
      fail "$page: the first section must be \"## ${VERSION#v} - DATE\""
  done
  echo "$VERSION"
}

# programs VERSION DIRECTORY: builds the programs for each platform in PLATFORMS into
# DIRECTORY/OS_ARCH.
programs() {
  local flags server_flags platform to programs
  flags="${STRIP--s -w} -X github.com/kubetenant/kubetenant/internal/version.stamp="
  flags+="kubetenant-release:$1:$(git rev-parse HEAD);"
  server_flags="$flags -X k8s.io/component-base/version.gitVersion=${KUBERNETES:?is set by make}"
  for platform in ${PLATFORMS//,/ }; do
    export GOOS=${platform%/*} GOARCH=${platform#*/}
    to=$2/${GOOS}_$GOARCH
    mkdir -p "$to"
    echo "building for $platform ..." >&2
    programs=(./cmd/kubectl-tenant)
    [ "$GOOS" != linux ] || programs+=(./cmd/kubetenant-webhook ./cmd/kubetenant-gateway)
    go build -ldflags "$flags" -o "$to/" "${programs[@]}"
    [ "$GOOS" != linux ] || (cd cmd/kube-apiserver && go build -ldflags "$server_flags" -o "$to/" .)
  done
  unset GOOS GOARCH
}

# signing prints the signing option for "release build". It fails if a release has no signing
# option.
signing() {
  if [ -n "${KEY:-}" ]; then
    [ -f "$KEY" ] || fail "KEY: no file $KEY: create it with: bin/cosign generate-key-pair"
    [ -n "${COSIGN_PASSWORD+set}" ] || fail 'KEY: set COSIGN_PASSWORD to the password of the key'
    printf '%s\n' "--key=$(realpath "$KEY")"
  elif [ "${KEYLESS:-}" = 1 ]; then
    echo --keyless
  elif [ "${UNSIGNED:-}" = 1 ]; then
    echo --unsigned
  elif [ -n "${VERSION:-}" ]; then
    fail 'a release needs signatures: set KEY=cosign.key, KEYLESS=1 or UNSIGNED=1'
  else
    echo --unsigned
  fi
}

build() {
  local version sign binaries
  version=$(version)
  sign=$(signing)
  PLATFORMS=${PLATFORMS:-darwin/amd64,darwin/arm64,linux/amd64,linux/arm64,windows/amd64,windows/arm64}
  [ ! -e "$dir" ] || [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty: remove it (rm -r $dir)"
  mkdir -p .cache
  binaries=$(mktemp -d "$root/.cache/release-XXXXXX")
  # shellcheck disable=SC2064 # the name is local to this function
  trap "rm -rf '$binaries'" EXIT
  programs "$version" "$binaries"
  "$tools/release" build --version "$version" --commit "$(git rev-parse HEAD)" --time "$(git log -1 --format=%ct)" \
    --platforms "$PLATFORMS" --binaries "$binaries" --tools "$tools" --dist "$dir" "$sign" \
    ${BUILDER:+--builder "$BUILDER"} ${INVOCATION:+--invocation "$INVOCATION"}
  echo "$dir has $version"
}

# verification prints the options with which "release verify" and "release push" verify. They compare
# a release with the files of the repository.
verification() {
  if [ -n "${VERSION:-}" ]; then
    [ "$(git rev-parse -q --verify "refs/tags/$VERSION^{commit}")" = "$(git rev-parse HEAD)" ] ||
      fail "HEAD does not have the tag $VERSION: check it out first (git checkout $VERSION)"
    [ -z "$(git status --porcelain)" ] || fail 'the tree has changes: a release is compared with the tagged files'
  fi
  printf '%s\n' "--commit=$(git rev-parse HEAD)" "--time=$(git log -1 --format=%ct)"
  if [ -n "${PUBLIC:-}" ]; then
    echo "--public-key=$PUBLIC"
  elif [ "${UNSIGNED:-}" = 1 ]; then
    echo --unsigned
  elif [ "${KEYLESS:-}" = 1 ]; then
    printf '%s\n' "--certificate-identity=${IDENTITY:?is the identity of the workflow}" \
      "--certificate-oidc-issuer=${ISSUER:-https://token.actions.githubusercontent.com}"
  else
    fail 'set PUBLIC=cosign.pub, or UNSIGNED=1 for a snapshot without signatures'
  fi
}

verify() {
  local how
  how=$(verification)
  mapfile -t how <<<"$how"
  "$tools/release" verify --dist "$dir" --tools "$tools" ${VERSION:+--version "$VERSION"} "${how[@]}"
}

push() {
  local how
  how=$(verification)
  mapfile -t how <<<"$how"
  "$tools/release" push --dist "$dir" --tools "$tools" ${VERSION:+--version "$VERSION"} "${how[@]}" \
    --registry "${REGISTRY:?for example registry.example.com/kubetenant}"
}

# check builds a snapshot for one platform, signs it with a temporary key, verifies it, and runs
# the tests in hack/release with it.
check() {
  dir=$root/.cache/release-check
  rm -rf "$dir"
  mkdir -p "$dir/key"
  export COSIGN_PASSWORD
  COSIGN_PASSWORD=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
  (cd "$dir/key" && "$tools/cosign" generate-key-pair >/dev/null 2>&1)
  throw_away_key=1 KEY=$dir/key/cosign.key PUBLIC=$dir/key/cosign.pub dir=$dir/dist
  SNAPSHOT=1 PLATFORMS=linux/amd64 build
  verify
  cd hack/release
  GOFLAGS=-trimpath KUBETENANT_RELEASE=$dir KUBETENANT_RELEASE_KEYS=${KEY%/*} KUBETENANT_BIN=$tools \
    go test -vet=off -count=1 .
}

# reproduce builds a snapshot of HEAD in two clones, in folders with different names, and compares
# the files.
reproduce() {
  local work clone
  work=$(mktemp -d "$root/.cache/reproduce-XXXXXX")
  for clone in first a-clone-with-another-path; do
    git clone -q "$root" "$work/$clone"
    mkdir -p "$work/$clone/bin"
    ln "$tools/release" "$tools/syft" "$work/$clone/bin/"
    (cd "$work/$clone" && GOCACHE=$work/cache-$clone SNAPSHOT=1 UNSIGNED=1 DIR=dist hack/release.sh build)
  done
  local differences
  differences=$(diff -rq "$work/first/dist" "$work/a-clone-with-another-path/dist" || true)
  # The provenance contains the times of the build, and checksums.txt contains the digest of the
  # provenance.
  differences=$(grep -v -e '/provenance.intoto.json ' -e '/checksums.txt ' <<<"$differences" || true)
  [ -z "$differences" ] || fail $'the clones differ:\n'"$differences"
  diff <(grep -v ' provenance.intoto.json$' "$work/first/dist/checksums.txt") \
    <(grep -v ' provenance.intoto.json$' "$work/a-clone-with-another-path/dist/checksums.txt")
  diff <(grep -v 'startedOn\|finishedOn' "$work/first/dist/provenance.intoto.json") \
    <(grep -v 'startedOn\|finishedOn' "$work/a-clone-with-another-path/dist/provenance.intoto.json")
  echo "both clones made the same $(wc -l <"$work/first/dist/checksums.txt") files"
  rm -rf "$work"
}

case ${1:-} in
  build | verify | push | check | reproduce) "$1" ;;
  *) fail 'use: release.sh build|verify|push|check|reproduce' ;;
esac
