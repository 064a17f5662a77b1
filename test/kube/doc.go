// Package translate tests Contiv with a real Kubernetes, which is built from its modules
// (test/kube/kubernetes; tools/kube.sh) and started by test/kube/cluster.
//
// It guarantees that nothing in it stands for Kubernetes: what is tested against an
// API server is tested against the one that users run. Its tests carry the build tag
// integration, and are skipped where CONTIV_KUBE names no built Kubernetes; `make
// test-kube` builds one and runs them.
//
// It must not contain anything but tests.
package kube
