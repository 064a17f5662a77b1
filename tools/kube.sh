#!/usr/bin/env bash
# kube.sh [FILE]: builds Kubernetes for tests (test/kube/kubernetes) and prints the
# program's path: FILE, else one in the user's cache that is keyed by what it is built
# from. Needs only Go; more than ten minutes of processor time the first time.
set -euo pipefail
cd "$(dirname "$0")/../test/kube/kubernetes"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$(cat go.mod go.sum main.go ../../../tools/kube.sh | sha256sum | cut -c1-12)
built=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/contiv-kube/$version-$key/kubernetes}
[[ $built == /* ]] || { echo "kube.sh: $built: must be an absolute path" >&2; exit 2; }
if [[ ! -x $built || $(cat "$built.key" 2>/dev/null) != "$key" ]]; then
	echo "building Kubernetes $version from its modules into $built (minutes the first time)" >&2
	mkdir -p "$(dirname "$built")"
	# Without a version clients take the servers for a development build and refuse some of what they say.
	minor=${version#v1.}
	flags="-s -w"
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*} -X $p.gitTreeState=clean"
	done
	CGO_ENABLED=0 nice -n 10 go build -mod=readonly -buildvcs=false -trimpath -ldflags "$flags" -o "$built.new" .
	mv "$built.new" "$built" # whole or not at all
	echo "$key" >"$built.key"
fi
echo "$built"
