package model

import "strings"

// The names of the policies that stand for objects of Kubernetes begin so, and nobody
// else's may: for a NetworkPolicy with its namespace, a dot and its name after it (a
// namespace has no dot), for a ClusterNetworkPolicy with its name, and where that is
// longer than names are with digits that stand for it.
const (
	OfNetworkPolicy        = "kubernetes."
	OfClusterNetworkPolicy = "kubernetes-cluster."
	OfLongName             = "kubernetes-long."
)

// Reserved tells whether a policy's name is kept for Kubernetes.
func (n PolicyName) Reserved() bool { return n.KubernetesObject() != "" }

// KubernetesObject says which object of Kubernetes a policy of that name stands for,
// for people; empty when the name is not kept for Kubernetes.
func (n PolicyName) KubernetesObject() string {
	if s, ok := strings.CutPrefix(string(n), OfNetworkPolicy); ok {
		namespace, name, _ := strings.Cut(s, ".")
		return "NetworkPolicy " + namespace + "/" + name
	}
	if s, ok := strings.CutPrefix(string(n), OfClusterNetworkPolicy); ok {
		return "ClusterNetworkPolicy " + s
	}
	if strings.HasPrefix(string(n), OfLongName) {
		return "a NetworkPolicy or ClusterNetworkPolicy with a long name"
	}
	return ""
}
