package model

import "strings"

// Prefixes of the names of policies for Kubernetes objects; other policies may not have
// them. After the prefix, a NetworkPolicy has its namespace, a dot and its name (a
// namespace has no dot), and a ClusterNetworkPolicy has its name. Digits replace the end of
// names that are too long.
const (
	OfNetworkPolicy        = "kubernetes."
	OfClusterNetworkPolicy = "kubernetes-cluster."
	OfLongName             = "kubernetes-long."
)

// IsKubernetes reports whether a policy's name is kept for Kubernetes.
func (n PolicyName) IsKubernetes() bool { return n.KubernetesObject() != "" }

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
