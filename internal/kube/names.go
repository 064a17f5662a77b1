package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The names of Kubernetes' policies begin so, and nobody else's may.
const (
	namespaced = "kubernetes."
	clusterOf  = "kubernetes-cluster."
	tooLong    = "kubernetes-long."
)

// Reserved tells whether a policy's name is kept for Kubernetes.
func Reserved(n model.PolicyName) bool {
	s := string(n)
	return strings.HasPrefix(s, namespaced) || strings.HasPrefix(s, clusterOf) || strings.HasPrefix(s, tooLong)
}

// NetworkPolicyName is the name of a NetworkPolicy's row: a namespace has no dot, so
// that no two policies have one.
func NetworkPolicyName(namespace, name string) model.PolicyName {
	return fitting(namespaced + namespace + "." + name)
}

// ClusterNetworkPolicyName is the name of a ClusterNetworkPolicy's rows.
func ClusterNetworkPolicyName(name string) model.PolicyName { return fitting(clusterOf + name) }

// fitting is a name, or where that is longer than names are the first 160 bits of its
// SHA-256: too many for somebody to find another object with the same.
func fitting(s string) model.PolicyName {
	if len(s) <= model.MaxName {
		return model.PolicyName(s)
	}
	sum := sha256.Sum256([]byte(s))
	return model.PolicyName(tooLong + hex.EncodeToString(sum[:20]))
}
