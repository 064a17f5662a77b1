package translate

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/contiv/netplugin/v2/internal/model"
)

// NetworkPolicyName is the name of a NetworkPolicy's row: a namespace has no dot, so
// that no two policies have one.
func NetworkPolicyName(namespace, name string) model.PolicyName {
	return shortenedName(model.OfNetworkPolicy + namespace + "." + name)
}

// ClusterNetworkPolicyName is the name of a ClusterNetworkPolicy's rows.
func ClusterNetworkPolicyName(name string) model.PolicyName {
	return shortenedName(model.OfClusterNetworkPolicy + name)
}

// shortenedName is a name, or where that is longer than names are the first 160 bits of its
// SHA-256: too many for somebody to find another object with the same.
func shortenedName(s string) model.PolicyName {
	if len(s) <= model.MaxName {
		return model.PolicyName(s)
	}
	sum := sha256.Sum256([]byte(s))
	return model.PolicyName(model.OfLongName + hex.EncodeToString(sum[:20]))
}
