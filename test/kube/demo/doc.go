// Command demo shows one cluster of Kubernetes and what is no pod of it: two nodes with
// kubelets and containerd, pods, a service and NetworkPolicies, and beside them a Docker
// container and a bare process in the same groups under the same policies. `make
// demo-kube` runs it, on the Kubernetes that tools/kube.sh built (CONTIV_KUBE).
//
// It guarantees that what it prints was tried: it fails when an answer is not what the
// intent says, and leaves nothing behind when it ends.
//
// It must not be a part of what users install: it starts what tests start.
package main
