#!/usr/bin/env bash
# check.sh [PACKAGE...]: vets and lints the packages that changed since BASE (main), or those
# given, and runs the -short tests of all packages that they are compiled into. These need no
# kernel, server or cluster: `make test` runs the others.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$(go list -m)
if (($#)); then
	changed=$(go list "$@")
else
	base=$(git merge-base HEAD "${BASE:-main}")
	files=$({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)
	changed=$(grep '\.go$' <<<"$files" | xargs -r -n1 dirname | sort -u | while read -r dir; do go list "./$dir" 2>/dev/null || true; done)
fi
[[ -n $changed ]] || { echo "check: no package has changed since ${BASE:-main}"; exit 0; }
# A package is touched if its test is compiled with a changed one.
touched=$(go list -test -f '{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}' ./... |
	awk -v changed="$changed" 'BEGIN { n = split(changed, c, "\n"); for (i = 1; i <= n; i++) is[c[i]] = 1 }
		{ for (i = 1; i <= NF; i++) if ($i in is) { print $1; next } }' | sort -u)
archtest=$module/internal/archtest
echo "check: $(wc -w <<<"$changed") changed, $(wc -w <<<"$touched") touched by them"
dirs=$(sed "s,^$module,.," <<<"$changed")
# shellcheck disable=SC2086 # several packages
go vet -tags integration $dirs
# shellcheck disable=SC2086
go test -vet=off -short $(sort -u <<<"$touched"$'\n'"$archtest")
# shellcheck disable=SC2086
GOFLAGS="${GOFLAGS:-} -mod=readonly" go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners $dirs
