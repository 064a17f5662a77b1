package driver

import "github.com/contiv/netplugin/v2/internal/model"

// Memberships is a driver that leads multicast to the members of groups
// (desired.Host.Groups), and hands over what is said about who is one. On VLAN networks
// the physical network has ports' reports and leaves, too; nobody has what only routers say.
type Memberships interface {
	// Reports yields messages of IGMP and MLD: those of ports in their own names, and on
	// VLAN networks those of the physical network. It gives each port a bounded share, and
	// leaves out what is too much or what nobody reads in time. Close closes it.
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
