package model

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
}
