package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/oracle"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Expectation is what the intent says about a question.
type Expectation struct {
	Verdict Verdict
	Why     string // what each host did with the packet and its reply
}

// Expect says what the intent in the store demands: it compiles the picture of
// every host, applies each to an oracle.Driver, and sends each question's packet
// and its reply through them.
func (l *Lab) Expect(ctx context.Context, qs []Question) ([]Expectation, error) {
	snap, rev, err := l.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return l.ExpectOf(ctx, snap, rev, qs)
}

// ExpectOf is Expect for a snapshot at hand.
func (l *Lab) ExpectOf(ctx context.Context, snap []tables.Change, rev store.Revision, qs []Question) ([]Expectation, error) {
	var fabric oracle.Fabric
	for name, pic := range l.Pictures(snap, rev) {
		fake := oracle.New()
		defer func() { _ = fake.Close() }() // it holds nothing
		if _, err := fake.Apply(ctx, pic); err != nil {
			return nil, fmt.Errorf("apply the picture of %s to the oracle: %w", name, err)
		}
		fabric.Add(name, fake)
	}
	endpoints := map[model.NetworkKey][]model.Endpoint{}
	for _, ch := range snap {
		if e, ok := ch.Value.(model.Endpoint); ok {
			endpoints[e.Key.Network] = append(endpoints[e.Key.Network], e)
		}
	}
	out := make([]Expectation, len(qs))
	for i, q := range qs {
		from, err := l.Container(q.From)
		if err != nil {
			return nil, err
		}
		net := model.NetworkKey{Tenant: model.TenantName(from.Tenant), Name: model.NetworkName(from.Network)}
		known := endpoints[net] // who has the address there, before anybody elsewhere
		if to, err := l.Container(q.To); err == nil {
			known = slices.Concat(known, endpoints[model.NetworkKey{Tenant: model.TenantName(to.Tenant), Name: model.NetworkName(to.Network)}])
		}
		out[i], err = expect(&fabric, known, from, q.Target, uint16(20000+i))
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

// expect asks the fabric one question; endpoints are those of the asker's network, and
// then those of the network of who is asked.
func expect(fabric *oracle.Fabric, endpoints []model.Endpoint, from *Attachment, t Target, srcPort uint16) (Expectation, error) {
	var src, dst *model.Endpoint
	for i, e := range endpoints {
		if e.IPv4 == from.IPv4 && e.IPv6 == from.IPv6 && src == nil {
			src = &endpoints[i]
		}
		if (e.IPv4 == t.Addr || e.IPv6 == t.Addr) && dst == nil {
			dst = &endpoints[i]
		}
	}
	switch {
	case src == nil:
		return Expectation{}, fmt.Errorf("the store has no endpoint %s %s", from.IPv4, from.IPv6)
	case dst == nil:
		return Expectation{Denied, "nobody on the network has the address"}, nil
	}
	proto := map[string]model.Protocol{"tcp": model.ProtoTCP, "udp": model.ProtoUDP, "icmp": model.ProtoICMP}[t.Proto]
	reached, hops := fabric.Reach(oracle.Probe{
		FromHost: src.Host, FromPort: compile.IfName(src.Key), ToHost: dst.Host, ToPort: compile.IfName(dst.Key),
		IPv6: t.Addr.Is6(), Proto: proto, SrcPort: srcPort, DstPort: t.Port,
	})
	why := make([]string, len(hops))
	for i, h := range hops {
		why[i] = fmt.Sprintf("%s: %s", h.Host, h.Verdict)
	}
	e := Expectation{Denied, strings.Join(why, "; ")}
	if reached {
		e.Verdict = OK
	}
	return e, nil
}
