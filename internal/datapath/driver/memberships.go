package driver

import "github.com/contiv/netplugin/v2/internal/model"

// Memberships is a driver that forwards multicast to the members of groups
// (desired.Host.Groups), and passes on membership messages. On VLAN networks the physical
// network gets ports' reports and leaves, too; messages of routers are passed to no port.
type Memberships interface {
	// Reports yields messages of IGMP and MLD: from ports under their names, and on VLAN
	// networks from the physical network. Each port has a bounded share. Excess messages,
	// and ones without a reader in time, are dropped. Close closes it.
	Reports() <-chan MembershipReport
	// Send sends a port's endpoint a frame, past all policy.
	Send(port string, frame []byte) error
}

// MembershipReport is such a message.
type MembershipReport struct {
	Port    string          // by desired.Port.IfName; empty = the physical network's
	Network model.NetworkID // of the latter
	Frame   []byte          // of Ethernet, without a tag
}
