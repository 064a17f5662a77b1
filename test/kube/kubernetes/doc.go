// Command kubernetes is Kubernetes for tests in one file: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy and kubectl, chosen by its
// name or first argument. One program is linked in a fifth of the time of six, and takes a
// third of the space. Start with main.
package main
