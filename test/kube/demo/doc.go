// Command demo shows a Kubernetes of two nodes with pods, a service and NetworkPolicies,
// and beside it a Docker container and a bare process in the same groups under the same
// policies. What it prints was tried: it fails when an answer differs from the policies,
// and leaves nothing behind. `make demo-kube` runs it, on the Kubernetes that tools/kube.sh
// built (CONTIV_KUBE). It is no part of what users install. Start with main.
package main
