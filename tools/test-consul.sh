#!/usr/bin/env bash
# The store's suite, and whole clusters, on a Consul that is built from its module
# first (tools/consul), which takes minutes the first time. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${CONTIV_CONSUL:-}" ]; then
	echo "building Consul from its module"
	CONTIV_CONSUL=$(go tool -modfile=tools/consul/go.mod -n consul)
fi
export CONTIV_CONSUL
go test -timeout 5m -count=1 ./internal/store/consul
go test -timeout 10m -count=1 -tags integration ./test/slice -run '^(TestContainersReachTheControlPlaneOnlyIfAllowed|TestContainersTalkWithoutNetmaster|TestServiceFollowsItsProviders|TestEachFieldOfNetworkPoliciesHasEffect)$' -args -consul "$CONTIV_CONSUL"
