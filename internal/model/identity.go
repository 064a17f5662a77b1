package model

import (
	"maps"
	"slices"
)

// Identity is the number that data planes match on instead of addresses:
// interned from tenant, network, group and filtered labels, never re-used while
// an endpoint has it.
type Identity uint32

const (
	// IdentityUnknown: no endpoint is known at the address. On a VXLAN network such a source is dropped.
	IdentityUnknown Identity = 0
	// IdentityExternal: an address on a VLAN network, or beyond a gateway, that is no endpoint's.
	IdentityExternal Identity = 1
	// IdentityHost: the host that the container runs on.
	IdentityHost Identity = 2
	// IdentityFirst is the first number handed out to endpoints.
	IdentityFirst Identity = 256
	// IdentityLast is the last one: data planes give identities 20 bits.
	IdentityLast Identity = 1<<20 - 1
	// MaxIdentities is how many there may be at a time, of all tenants together.
	MaxIdentities = int(IdentityLast-IdentityFirst) + 1
)

// IdentityRecord is the meaning of an Identity.
type IdentityRecord struct {
	ID      Identity          `json:"id"`
	Network NetworkKey        `json:"network"`
	Group   GroupName         `json:"group,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// LabelsLater: the labels are not known yet. No selector that asks for labels
	// selects it; rules that deny by such a selector take it for a peer.
	LabelsLater bool `json:"labelsLater,omitempty"`
	// Namespace is the orchestrator's namespace that it is in; empty = none.
	Namespace NamespaceName `json:"namespace,omitempty"`
	// Ports are the ones that rules may name, sorted by name and protocol, each once.
	Ports []NamedPort `json:"ports,omitempty"`
	// NamespaceLabels are the labels of the namespace's row, joined by a holder of both.
	// They are no part of the identity.
	NamespaceLabels map[string]string `json:"-"`
}

// Equal compares two records by contents.
func (r IdentityRecord) Equal(o IdentityRecord) bool {
	return r.ID == o.ID && r.Network == o.Network && r.Group == o.Group && r.LabelsLater == o.LabelsLater && r.Namespace == o.Namespace &&
		maps.Equal(r.Labels, o.Labels) && slices.Equal(r.Ports, o.Ports) && maps.Equal(r.NamespaceLabels, o.NamespaceLabels)
}

// In joins a record with the row of its namespace; nil = there is none, or it is in
// no namespace.
func (r IdentityRecord) In(n *Namespace) IdentityRecord {
	r.NamespaceLabels = nil
	if n != nil && n.Name == r.Namespace {
		r.NamespaceLabels = make(map[string]string, len(n.Labels)+1)
		maps.Copy(r.NamespaceLabels, n.Labels)
		r.NamespaceLabels[NamespaceNameLabel] = string(n.Name)
	}
	return r
}

// LabelsUnknown reports whether its labels, or those of its namespace, are not known:
// no selector that asks for labels selects it.
func (r IdentityRecord) LabelsUnknown() bool {
	return r.LabelsLater || r.Namespace != "" && r.NamespaceLabels == nil
}
