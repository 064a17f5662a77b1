#!/usr/bin/env bash
# The tests with a real Kubernetes, which is built from its modules first
# (tools/kube.sh): minutes the first time. CONTIV_KUBE names one that is built.
set -euo pipefail
cd "$(dirname "$0")/.."
CONTIV_KUBE=${CONTIV_KUBE:-$(tools/kube.sh)}
export CONTIV_KUBE
go -C packaging/kubernetes/render test ./... # the chart, by Helm's own lint and template
go test -timeout 10m -count=1 -tags integration ./test/kube/...
