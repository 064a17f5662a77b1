package drivertest

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
)

// ReservedFlag is the case of Damaged of IPv4's reserved flag.
const ReservedFlag = "reserved flag"

// CutShort is the case of Damaged of a UDP datagram of which the end is missing.
const CutShort = "UDP cut short"

// testDamaged: packets that nobody sends go nowhere, new ones and those of a
// connection that is known, from a port, out of the tunnel and from the uplink.
func testDamaged(t *testing.T, h Harness) {
	t.Helper()
	top := StandardTopology()
	b, w := sending(t, h, top, Case{})
	b.apply(t, w.Pictures["h1"])
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
				if x.proto == model.ProtoTCP && x.damage == oracle.Sound {
					bad.TCPFlags = x.flags
				}
				b.compare(t, name+", unknown", bad)
				// Packets of known connections go another way through a data plane.
				b.compare(t, name+": request", p)
				b.compare(t, name+": answer", answerTo(top, p, from, to))
				if x.proto == model.ProtoTCP {
					p.TCPFlags = oracle.FlagACK
				}
				for range 2 {
					b.compare(t, name+": again", p)
				}
				bad = p
				bad.Damage = x.damage
				if x.proto == model.ProtoTCP && x.damage == oracle.Sound {
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
	damage oracle.Damage
	flags  uint8
	only4  bool
}

func damaged() []damagedCase {
	tcp := func(name string, flags uint8) damagedCase {
		return damagedCase{name: name, proto: model.ProtoTCP, flags: flags}
	}
	return []damagedCase{
		{name: "UDP length beyond the packet", proto: model.ProtoUDP, damage: oracle.UDPTooLong},
		{name: "UDP length 0", proto: model.ProtoUDP, damage: oracle.UDPLengthZero},
		{name: "TCP data beyond the packet", proto: model.ProtoTCP, damage: oracle.TCPBeyond},
		{name: "TCP data in the header", proto: model.ProtoTCP, damage: oracle.TCPInside},
		{name: "header checksum", proto: model.ProtoTCP, damage: oracle.WrongChecksum, only4: true},
		{name: "header checksum of UDP", proto: model.ProtoUDP, damage: oracle.WrongChecksum, only4: true},
		{name: "no hops left", proto: model.ProtoTCP, damage: oracle.NoHopsLeft},
		{name: ReservedFlag, proto: model.ProtoTCP, damage: oracle.ReservedFlag, only4: true},
		{name: "TCP cut short", proto: model.ProtoTCP, damage: oracle.CutShort},
		{name: CutShort, proto: model.ProtoUDP, damage: oracle.CutShort},
		tcp("no flags", 0),
		tcp("SYN and FIN", oracle.FlagSYN|oracle.FlagFIN),
		tcp("SYN and RST", oracle.FlagSYN|oracle.FlagRST),
		tcp("FIN, PSH and URG", oracle.FlagFIN|oracle.FlagPSH|oracle.FlagURG),
		tcp("FIN alone", oracle.FlagFIN),
		tcp("PSH alone", oracle.FlagPSH),
	}
}
