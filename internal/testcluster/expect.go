package testcluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Expectation is what the intent says about a question.
type Expectation struct {
	Verdict Verdict
	Why     string // what each host did with the packet and its reply
}

// ByHost is how a question gets to the data plane by way of a host's stack: the client
// there or beyond it, and the destination after the stack's own translations, such as a
// published port's.
type ByHost struct {
	Host string
	Src  netip.Addr
	Dst  netip.AddrPort
}

// Expect says what the intent in the store demands: it compiles the desired state of
// every host, applies each to an reference.Driver, and sends each question's packet
// and its reply through them. Containers have the private addresses that their
// hosts gave them.
func (l *Lab) Expect(ctx context.Context, qs []Question) ([]Expectation, error) {
	snap, rev, err := l.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return l.ExpectOf(ctx, snap, rev, qs)
}

// ExpectOf is Expect for a snapshot at hand.
func (l *Lab) ExpectOf(ctx context.Context, snap []tables.Change, rev store.Revision, qs []Question) ([]Expectation, error) {
	private := privateAddresses(ctx, l.hosts)
	e := expecting{lab: l, endpoints: map[model.NetworkKey][]model.Endpoint{}, exposed: map[netip.Addr]bool{}, private: map[model.HostName]*desired.HostNAT{}}
	for name, pic := range l.desiredStates(snap, rev, private) {
		fake := reference.New()
		defer func() { _ = fake.Close() }() // it holds nothing
		if _, err := fake.Apply(ctx, pic); err != nil {
			return nil, fmt.Errorf("apply the desired state of %s to the reference data plane: %w", name, err)
		}
		e.fabric.Add(name, fake)
		e.private[name] = pic.HostNAT
		for _, s := range pic.Services.All() {
			e.exposed[s.IPv4], e.exposed[s.IPv6] = s.Exposed, s.Exposed
		}
	}
	for _, ch := range snap {
		if v, ok := ch.Value.(model.Endpoint); ok {
			e.endpoints[v.Key.Network] = append(e.endpoints[v.Key.Network], v)
		}
	}
	out := make([]Expectation, len(qs))
	for i, q := range qs {
		// Which backend a data plane chooses is its own affair: the answer must not
		// depend on it.
		for k := range uint16(4) {
			x, err := e.expect(q, 20000+uint16(4*i)+k)
			if err != nil {
				return nil, fmt.Errorf("expect %s from %s: %w", q.Target, q.From, err)
			}
			if k > 0 && x.Verdict != out[i].Verdict {
				return nil, fmt.Errorf("expect %s from %s: %s (%s) or %s (%s), as the backend is chosen", q.Target, q.From, out[i].Verdict, out[i].Why, x.Verdict, x.Why)
			}
			out[i] = x
		}
	}
	return out, nil
}

// expecting is what the intent says of a whole cluster.
type expecting struct {
	lab       *Lab
	fabric    reference.Fabric
	endpoints map[model.NetworkKey][]model.Endpoint
	exposed   map[netip.Addr]bool // virtual addresses
	private   map[model.HostName]*desired.HostNAT
}

// endpoint finds the one of a container.
func (e *expecting) endpoint(a *Attachment) (model.Endpoint, error) {
	all := e.endpoints[model.NetworkKey{Tenant: model.TenantName(a.Tenant), Name: model.NetworkName(a.Network)}]
	i := slices.IndexFunc(all, func(x model.Endpoint) bool { return x.IPv4 == a.IPv4 && x.IPv6 == a.IPv6 })
	if i < 0 {
		return model.Endpoint{}, fmt.Errorf("the store has no endpoint %s %s", a.IPv4, a.IPv6)
	}
	return all[i], nil
}

// expect asks one question.
func (e *expecting) expect(q Question, srcPort uint16) (Expectation, error) {
	ask := reference.Request{
		Dst: q.Addr, SrcPort: srcPort, DstPort: q.Port,
		Proto: map[string]model.Protocol{"tcp": model.ProtoTCP, "udp": model.ProtoUDP, "icmp": model.ProtoICMP}[q.Proto],
	}
	if by := q.ByHost; by != nil {
		ask.Host, ask.Src, ask.Dst, ask.DstPort = model.HostName(by.Host), by.Src, by.Dst.Addr(), by.Dst.Port()
	} else {
		c, err := e.lab.Container(q.From)
		if err != nil {
			return Expectation{}, err
		}
		from, err := e.endpoint(c)
		if err != nil {
			return Expectation{}, err
		}
		ask.Host, ask.Port = from.Host, compile.IfName(from.Key)
	}
	out := e.fabric.Ask(ask)
	if out.Answered && out.By.Port == "" && e.exposed[ask.Dst] { // the host's stack hands it back, in its own name
		h, err := e.lab.Host(string(ask.Host))
		if err != nil {
			return Expectation{}, err
		}
		before := out.Hops
		// By IPv6 the host may have another address than this one, which reaches its
		// own containers alone: it needs a provider there.
		if ask.Port, ask.Src = "", h.Address; ask.Dst.Is6() {
			ask.Src = e.private[ask.Host].Addr6
		}
		out = e.fabric.Ask(ask)
		out.Hops = slices.Concat(before, out.Hops)
	}
	why := make([]string, len(out.Hops))
	for i, h := range out.Hops {
		why[i] = fmt.Sprintf("%s: %s", h.Host, h.Verdict)
	}
	x := Expectation{Denied, strings.Join(why, "; ")}
	to, err := e.lab.Container(q.To)
	switch {
	case out.Refused:
		x.Verdict = Refused
	case !out.Answered:
	case err != nil && q.To != "": // a host, or somebody beyond it
		if out.By.Port == "" {
			x.Verdict = OK
		}
	case err != nil: // any answer, except the host's stack's, which has no such address
		if out.By.Port != "" {
			x.Verdict = OK
		}
	default:
		asked, err := e.endpoint(to)
		if err != nil {
			return Expectation{}, err
		}
		if port := ask.DstPort; out.By == (reference.Arrival{Host: asked.Host, Port: compile.IfName(asked.Key)}) {
			if x.Verdict = OK; q.Proto != "icmp" && !slices.Contains(to.Listen, fmt.Sprintf("%s/%d", q.Proto, port)) {
				x.Verdict = Refused
			}
		}
	}
	return x, nil
}

// desiredStates compiles a snapshot for every host, with its egress.
func (l *Lab) desiredStates(snap []tables.Change, rev store.Revision, private map[model.HostName]map[string]netip.Addr) map[model.HostName]desired.Host {
	out := map[model.HostName]desired.Host{}
	for _, h := range l.hosts {
		name := model.HostName(h.Name)
		c := compile.New(name)
		enter(c, snap)
		for _, ch := range snap {
			switch v := ch.Value.(type) {
			case model.Global:
				way := desired.NewHostNAT(v.PvtSubnet).WithIPv6()
				way.TunnelPort = tunnelPort
				c.Egress.SetPrivate(way)
			case model.Endpoint:
				if a := private[name][compile.IfName(v.Key)]; v.Host == name && a.IsValid() {
					c.Egress.SetPrivateAddress(v.Key, a)
				}
			}
		}
		out[name], _ = c.Compile(int64(rev))
	}
	return out
}

// tunnelPort is the hosts' UDP port for tunnels (RFC 7348).
const tunnelPort = 4789
