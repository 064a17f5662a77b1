#!/usr/bin/env bash
# The tests with real data planes, etcd and namespaces, on programs that are built once.
# Those that judge times, losses or loads have the machine for themselves, one package
# after another; test/docker and the rest of test/slice run side by side, with a few tests more than
# processors: with more of them what has a deadline of its own, such as Docker's, misses it.
# test/kube needs a Kubernetes (test-kube.sh), test/bgp a quiet machine (make test-bgp); of
# test/cluster there is one short run on the embedded etcd, since the rest takes minutes
# (make test-cluster). Arguments: the programs. Needs root and tools/deps.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
CONTIV_TEST_BIN=$(mktemp -d)
export CONTIV_TEST_BIN CGO_ENABLED=0
trap 'rm -rf "$CONTIV_TEST_BIN"' EXIT
go build -ldflags '-s -w' -o "$CONTIV_TEST_BIN/" "${@/#/./cmd/}"
packages=$(grep -rl --include='*_test.go' '^//go:build .*integration' . | xargs -r -n1 dirname | sort -u | grep -vx -e ./test/docker -e ./test/bgp -e ./test/cluster -e ./test/matrix -e ./test/packages -e './test/kube.*')
failed=0
# shellcheck disable=SC2086 # several packages
CONTIV_TEST_MACHINE=own tools/gotest.sh -timeout 15m -count=1 -p 1 -tags integration -- $packages || failed=1
CONTIV_TEST_MACHINE=shared tools/gotest.sh -timeout 25m -count=1 -p 2 -parallel $(($(nproc) + 1)) -tags integration -- ./test/docker ./test/slice || failed=1
tools/gotest.sh -timeout 10m -count=1 -tags integration -run '^TestCluster$' -- ./test/cluster || failed=1
# Rows of the matrix that the commit chooses, begun within some minutes; make test-matrix has all.
# Those on Kubernetes or Consul run where CONTIV_MATRIX_KUBE or CONTIV_MATRIX_CONSUL names one.
CONTIV_KUBE=${CONTIV_MATRIX_KUBE:-${CONTIV_KUBE:-}} CONTIV_CONSUL=${CONTIV_MATRIX_CONSUL:-${CONTIV_CONSUL:-}} CONTIV_MATRIX_FOR=${CONTIV_MATRIX_FOR:-1m} tools/gotest.sh -timeout 15m -count=1 -tags integration -- ./test/matrix || failed=1
exit $failed
