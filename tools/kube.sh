#!/usr/bin/env bash
# kube.sh [-nodes] [DIR]: builds Kubernetes for tests (test/kube/kubernetes) and prints the path
# of its program; beside it are what nodes and tests need: agnhost and pause, which are
# programs in containers, and Kubernetes' own tests: e2e.test, with ginkgo that runs it, and
# CoreDNS and an image's program that it asks, and policyapi.test, of network-policy-api. They are in DIR, else in a directory of the user's cache that is keyed by what
# they are built from. -nodes leaves out Kubernetes' own tests. Needs only Go; a quarter
# of an hour of processor time the first time.
set -euo pipefail
nodes=
[[ ${1:-} != -nodes ]] || { nodes=1; shift; }
cd "$(dirname "$0")/../test/kube/kubernetes"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$(cat go.mod go.sum main.go pause/*.go e2e/*.go ../{policyapi,coredns}/{go.mod,go.sum,*.go} ../../../tools/kube.sh | sha256sum | cut -c1-12)
dir=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/contiv-kube/$version-$key}
[[ $dir == /* ]] || { echo "kube.sh: $dir: must be an absolute path" >&2; exit 2; }
has() { [[ $(cat "$dir/$1" 2>/dev/null) == "$key" ]]; } # KEY FILE
if ! has key && ! { [[ $nodes ]] && has key.nodes; }; then
	echo "building Kubernetes $version from its modules into $dir (minutes the first time)" >&2
	mkdir -p "$dir"
	# Without a version clients take the servers for a development build and refuse some of what they say.
	minor=${version#v1.}
	flags="-s -w"
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		flags+=" -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*} -X $p.gitTreeState=clean"
	done
	export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false -trimpath"
	build() { # OUTPUT PACKAGE
		nice -n 10 go build -ldflags "$flags" -o "$dir/$1.new" "$2"
		mv "$dir/$1.new" "$dir/$1" # whole or not at all
	}
	build_test() { # OUTPUT DIRECTORY
		nice -n 10 go -C "$2" test -c -ldflags "$flags" -o "$dir/$1.new" .
		mv "$dir/$1.new" "$dir/$1"
	}
	if ! has key.nodes; then
		build kubernetes .
		build pause ./pause
		build agnhost k8s.io/kubernetes/test/images/agnhost
		echo "$key" >"$dir/key.nodes"
	fi
	if [[ ! $nodes ]]; then
		install -m 644 -t "$dir" "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.{crt,key}
		nice -n 10 go -C ../coredns build -ldflags "-s -w" -o "$dir/coredns" .
		build regression-issue-74839 k8s.io/kubernetes/test/images/regression-issue-74839
		build ginkgo github.com/onsi/ginkgo/v2/ginkgo
		build_test e2e.test e2e
		# A connection that fails ends network-policy-api's test no more: the steps after it run too.
		api=$dir/network-policy-api
		rm -rf "$api"
		cp -r --no-preserve=mode "$(go -C ../policyapi list -m -f '{{.Dir}}' sigs.k8s.io/network-policy-api)" "$api"
		sed -i.orig '/^func PokeServer(/,/^}/s/require\.Eventually(/assert.Eventually(/' "$api/conformance/utils/kubernetes/helper.go"
		! cmp -s "$api/conformance/utils/kubernetes/helper.go"{,.orig} || { echo "kube.sh: PokeServer of network-policy-api ends a test elsewhere now" >&2; exit 1; }
		cp ../policyapi/go.sum "$dir/policyapi.sum"
		cp ../policyapi/go.mod "$dir/policyapi.mod"
		go mod edit -replace="sigs.k8s.io/network-policy-api=$api" "$dir/policyapi.mod"
		GOFLAGS="$GOFLAGS -modfile=$dir/policyapi.mod" build_test policyapi.test ../policyapi
		echo "$key" >"$dir/key"
	fi
fi
echo "$dir/kubernetes"
