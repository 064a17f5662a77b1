package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Expectation is what the intent says about a question.
type Expectation struct {
	Verdict Verdict
	Why     string // where and by which rule it was decided
}

// Expect says what the intent in the store demands: it compiles the picture of
// every host, applies each to a driver.Fake, and sends each question's packet
// and its reply through them.
func (l *Lab) Expect(ctx context.Context, qs []Question) ([]Expectation, error) {
	snap, rev, err := l.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return l.ExpectOf(ctx, snap, rev, qs)
}

// ExpectOf is Expect for a snapshot at hand.
func (l *Lab) ExpectOf(ctx context.Context, snap []store.Change, rev store.Revision, qs []Question) ([]Expectation, error) {
	f := fabric{fakes: map[model.HostName]*driver.Fake{}, endpoints: map[model.NetworkKey][]model.Endpoint{}}
	for name, pic := range l.Pictures(snap, rev) {
		fake := driver.NewFake()
		defer fake.Close()
		if _, err := fake.Apply(ctx, pic); err != nil {
			return nil, fmt.Errorf("apply the picture of %s to the Fake: %w", name, err)
		}
		f.fakes[name] = fake
		f.pictures = append(f.pictures, pic)
	}
	for _, ch := range snap {
		if e, ok := ch.Value.(model.Endpoint); ok {
			f.endpoints[e.Key.Network] = append(f.endpoints[e.Key.Network], e)
		}
	}
	out := make([]Expectation, len(qs))
	for i, q := range qs {
		a, err := l.Container(q.From)
		if err != nil {
			return nil, err
		}
		out[i], err = f.ask(a, q.Target, uint16(20000+i))
		if err != nil {
			return nil, fmt.Errorf("expect %s from %s: %w", q.Target, q.From, err)
		}
		if to, err := l.Container(q.To); err == nil && out[i].Verdict == OK && q.Proto != "icmp" &&
			!slices.Contains(to.Listen, fmt.Sprintf("%s/%d", q.Proto, q.Port)) {
			out[i].Verdict = Refused
		}
	}
	return out, nil
}

// fabric joins the Fakes of all hosts by tunnels and by the VLAN trunk.
type fabric struct {
	fakes     map[model.HostName]*driver.Fake
	pictures  []desired.Host
	endpoints map[model.NetworkKey][]model.Endpoint
}

// ask sends a question's first packet and, when it arrives, the reply.
func (f *fabric) ask(from *Attachment, t Target, srcPort uint16) (Expectation, error) {
	net := model.NetworkKey{Tenant: model.TenantName(from.Tenant), Name: model.NetworkName(from.Network)}
	var src, dst *model.Endpoint
	for i, e := range f.endpoints[net] {
		if e.IPv4 == from.IPv4 && e.IPv6 == from.IPv6 {
			src = &f.endpoints[net][i]
		}
		if e.IPv4 == t.Addr || e.IPv6 == t.Addr {
			dst = &f.endpoints[net][i]
		}
	}
	switch {
	case src == nil:
		return Expectation{}, fmt.Errorf("the store has no endpoint %s %s on %s", from.IPv4, from.IPv6, net)
	case dst == nil:
		return Expectation{Denied, "nobody has the address"}, nil
	}
	p := driver.Packet{SrcMAC: src.MAC, DstMAC: dst.MAC, Src: src.IPv4, Dst: t.Addr, SrcPort: srcPort, DstPort: t.Port}
	if t.Addr.Is6() {
		p.Src = src.IPv6
	}
	switch t.Proto {
	case "tcp":
		p.Proto, p.TCPFlags = model.ProtoTCP, driver.FlagSYN
	case "udp":
		p.Proto = model.ProtoUDP
	case "icmp":
		p.Proto, p.ICMPType, p.ICMPID, p.SrcPort, p.DstPort = model.ProtoICMP, 8, srcPort, 0, 0
		if t.Addr.Is6() {
			p.Proto, p.ICMPType = model.ProtoICMPv6, 128
		}
	}
	arrived, why := f.carry(src, dst, p)
	if !arrived {
		return Expectation{Denied, why}, nil
	}
	r := p
	r.SrcMAC, r.DstMAC, r.Src, r.Dst, r.SrcPort, r.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
	switch t.Proto {
	case "tcp":
		r.TCPFlags = driver.FlagSYN | driver.FlagACK
	case "icmp":
		r.ICMPType = 0
		if t.Addr.Is6() {
			r.ICMPType = 129
		}
	}
	if back, how := f.carry(dst, src, r); !back {
		return Expectation{Denied, "reply " + how}, nil
	}
	return Expectation{OK, why}, nil
}

// carry sends a packet from one endpoint and tells whether it reaches another.
func (f *fabric) carry(src, dst *model.Endpoint, p driver.Packet) (bool, string) {
	want := f.port(dst)
	p.Port = f.port(src)
	v := f.fakes[src.Host].Send(p)
	why := fmt.Sprintf("%s: %s", src.Host, v)
	if dst.Host == src.Host {
		return slices.Contains(v.Ports, want), why
	}
	in := p
	in.Port = ""
	switch {
	case slices.Contains(v.VTEPs, f.vtep(dst.Host)):
		in.VTEP, in.Network = f.vtep(src.Host), v.Network
	case v.Uplink:
		in.Uplink, in.VLAN = true, v.VLAN
	default:
		return false, why
	}
	v = f.fakes[dst.Host].Send(in)
	return slices.Contains(v.Ports, want), fmt.Sprintf("%s; %s: %s", why, dst.Host, v)
}

// port returns the interface name of an endpoint on its host.
func (f *fabric) port(e *model.Endpoint) string {
	for _, pic := range f.pictures {
		for name, p := range pic.Ports.All() {
			if p.Endpoint == e.Key {
				return name
			}
		}
	}
	return ""
}

func (f *fabric) vtep(h model.HostName) netip.Addr {
	for _, pic := range f.pictures {
		if pic.Name == h {
			return pic.VTEP
		}
	}
	return netip.Addr{}
}
