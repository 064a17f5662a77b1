package conformance

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ReservedFlag is the case of Damaged of IPv4's reserved flag.
const ReservedFlag = "reserved flag"

// CutShort is the case of Damaged of a UDP datagram of which the end is missing.
const CutShort = "UDP cut short"

// testDamaged: malformed packets are dropped, of new and of known connections, from a port,
// from the tunnel and from the uplink.
func testDamaged(t *testing.T, h Harness) {
	t.Helper()
	top := StandardTopology()
	b, w := sending(t, h, top, Case{})
	b.apply(t, w.Desired["h1"])
	at := func(network model.NetworkName, id model.EndpointID) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: network}, ID: id})
	}
	sport := uint16(50000)
	for i, pair := range [][2]model.Endpoint{
		{at("vx", "web1"), at("vx", "db1")},
		{at("vx", "web1"), at("vx", "db2")},
		{at("vx", "db2"), at("vx", "web1")},
		{at("vl", "lan2"), at("vl", "lan1")},
	} {
		from, to := pair[0], pair[1]
		for _, v6 := range []bool{false, true} {
			for _, x := range damaged() {
				if v6 && (x.only4 || i > 0) { // what is read is the same wherever it comes from
					continue
				}
				if why := h.Differs[x.name]; why != "" {
					t.Logf("%s: %s", x.name, why)
					continue
				}
				sport++
				p := between(top, from, to, x.proto, v6, sport, 80)
				name := fmt.Sprintf("%s to %s, IPv6 %v: %s", from.Key.ID, to.Key.ID, v6, x.name)
				bad := p
				bad.Damage = x.damage
				if x.proto == model.ProtoTCP && x.damage == reference.Intact {
					bad.TCPFlags = x.flags
				}
				b.compare(t, name+", unknown", bad)
				// Packets of known connections go another way through a data plane.
				b.compare(t, name+": request", p)
				b.compare(t, name+": answer", answerTo(top, p, from, to))
				if x.proto == model.ProtoTCP {
					p.TCPFlags = reference.FlagACK
				}
				for range 2 {
					b.compare(t, name+": again", p)
				}
				bad = p
				bad.Damage = x.damage
				if x.proto == model.ProtoTCP && x.damage == reference.Intact {
					bad.TCPFlags = x.flags
				}
				b.compare(t, name+", known", bad)
				b.compare(t, name+": at last", p)
			}
		}
	}
}

type damagedCase struct {
	name   string
	proto  model.Protocol
	damage reference.Damage
	flags  uint8
	only4  bool
}

func damaged() []damagedCase {
	tcp := func(name string, flags uint8) damagedCase {
		return damagedCase{name: name, proto: model.ProtoTCP, flags: flags}
	}
	return []damagedCase{
		{name: "UDP length beyond the packet", proto: model.ProtoUDP, damage: reference.UDPTooLong},
		{name: "UDP length 0", proto: model.ProtoUDP, damage: reference.UDPLengthZero},
		{name: "TCP data beyond the packet", proto: model.ProtoTCP, damage: reference.TCPBeyond},
		{name: "TCP data in the header", proto: model.ProtoTCP, damage: reference.TCPInside},
		{name: "header checksum", proto: model.ProtoTCP, damage: reference.WrongChecksum, only4: true},
		{name: "header checksum of UDP", proto: model.ProtoUDP, damage: reference.WrongChecksum, only4: true},
		{name: "no hops left", proto: model.ProtoTCP, damage: reference.NoHopsLeft},
		{name: ReservedFlag, proto: model.ProtoTCP, damage: reference.ReservedFlag, only4: true},
		{name: "TCP cut short", proto: model.ProtoTCP, damage: reference.CutShort},
		{name: CutShort, proto: model.ProtoUDP, damage: reference.CutShort},
		tcp("no flags", 0),
		tcp("SYN and FIN", reference.FlagSYN|reference.FlagFIN),
		tcp("SYN and RST", reference.FlagSYN|reference.FlagRST),
		tcp("FIN, PSH and URG", reference.FlagFIN|reference.FlagPSH|reference.FlagURG),
		tcp("FIN alone", reference.FlagFIN),
		tcp("PSH alone", reference.FlagPSH),
	}
}
