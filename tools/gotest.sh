#!/usr/bin/env bash
# gotest.sh FLAG... -- PACKAGE...: go test. In CI (CI=true) a test that fails is tried once
# more, at most three of them, since a landing must not hang on one lost packet; the log holds
# each failure's output, names the test and counts the run ("re-run"), so that it is seen.
# What is decided by a seed fails again. Elsewhere a test that fails has failed.
# Tests are not vetted once more, with all that they import: lint does, all of it.
set -euo pipefail
flags=(-vet=off)
while [[ $1 != -- ]]; do flags+=("$1"); shift; done
shift
if [[ ${CI:-} != true ]]; then exec go test "${flags[@]}" "$@"; fi
top=$(dirname "$0")
GOFLAGS="${GOFLAGS:-} -mod=readonly" exec go tool -modfile="$top/go.mod" gotestsum --format pkgname --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=3 --packages="$*" -- "${flags[@]}"
