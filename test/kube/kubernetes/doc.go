// Command kubernetes is Kubernetes for tests in one file: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy and kubectl. It is
// the one that its first argument names, or the name that it is called by. One
// program is linked in a fifth of the time and takes a third of the room of six.
package main
