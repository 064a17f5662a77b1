package ovs

import (
	"encoding/binary"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// portNumbers is what those know of ports' numbers who may not wait for an Apply.
type portNumbers struct {
	ports  map[uint32]string
	uplink uint32 // 0 = none
	tunnel uint32 // by which the driver sends probes, likewise
}

// nameNumbers takes over a desired state whose flows the switch has.
func (a *responder) nameNumbers(host *desired.Host, pic *flowState) {
	n := portNumbers{ports: make(map[uint32]string, len(pic.numbers)), uplink: pic.config.Uplink}
	if pic.config.Answers {
		n.tunnel = pic.config.Tunnel
	}
	for name, number := range pic.numbers {
		n.ports[number] = name
	}
	a.latest.Store(host)
	a.named.Store(&n)
}

// handleMembership hands on what the switch has sent up about memberships of multicast groups. What
// endpoints of VLAN networks say by IGMP it sends to the uplink, if it is of members; what
// they say by MLD flows send there.
func (a *responder) handleMembership(conn *openflow.Conn, p openflow.PacketIn) {
	r := driver.MembershipReport{Network: model.NetworkID(p.Register(pipeline.RegNetwork)), Frame: slices.Clone(p.Frame)}
	if kind, number, _ := pipeline.KindOf(p.Cookie); kind == pipeline.KindPort {
		names, pic := a.named.Load(), a.latest.Load()
		if names == nil || names.ports[number] == "" {
			return
		}
		r.Port = names.ports[number]
		if pic != nil && names.uplink != 0 && ofMember(p.Frame) {
			if n, ok := pic.Networks.Get(r.Network); ok && n.Encap == model.EncapVLAN {
				_ = conn.SendTagged(names.uplink, n.Tag, p.Frame) // the fabric asks again
			}
		}
	}
	select {
	case a.reports <- r:
	default: // it is asked again
	}
}

// Reports implements driver.Memberships.
func (d *Driver) Reports() <-chan driver.MembershipReport { return d.responder.reports }

// Send implements driver.Memberships.
func (d *Driver) Send(port string, frame []byte) error {
	names, conn := d.responder.named.Load(), d.responder.answerc.Load()
	if names == nil || conn == nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer yet")
	}
	for number, name := range names.ports {
		if name == port {
			return conn.SendPacket(number, frame)
		}
	}
	return model.Errorf(model.ErrNotFound, "open vswitch: there is no port %s", port)
}

// ofMember reports whether a frame is a report or a leave of IGMP. All else that IGMP has
// (questions, who is a router) is routers', which no endpoint is: switches of the physical
// network send to who says so all that is sent to any group.
func ofMember(f []byte) bool {
	if len(f) < ethernetLen+ipv4Len || binary.BigEndian.Uint16(f[12:]) != 0x0800 {
		return false
	}
	ip := f[ethernetLen:]
	head, size := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if head < ipv4Len || size < head+8 || size > len(ip) || ip[9] != 2 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		return false // or a fragment: so small a message is never fragmented
	}
	switch ip[head] {
	case 0x12, 0x16, 0x17, 0x22: // versions 1 and 2, a leave, version 3 (RFC 3376 section 4)
		return true
	}
	return false
}
