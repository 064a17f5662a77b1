package analysis

import (
	"context"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Probe is a packet that a host can send, with what is expected of it.
type Probe struct {
	Reachable
	From      model.EndpointKey
	Host      model.HostName // of From
	Src, Dst  netip.Addr
	Receivers []Receiver // the endpoints that may get it, as far as the client may know them
}

// Receiver is an endpoint that may get a Probe.
type Receiver struct {
	Endpoint model.EndpointKey
	Host     model.HostName
	Addr     netip.Addr
	Port     uint16 // 0 = the packet's own; else the one that a service leads to
}

// maxReceivers bounds the endpoints at which a packet is looked for.
const maxReceivers = 64

// Probe answers a question whose From is one endpoint, and whose To is one endpoint, service or
// address, for one packet of a protocol. Of two families it takes IPv4. The error is of kind
// model.ErrInvalid where several are asked about, or where the ends have no family in common.
func (e *Engine) Probe(ctx context.Context, q Question, protocol model.Protocol, scope Scope) (out Probe, err error) {
	err = e.ask(ctx, func(r *clusterRows) error {
		from, err := r.resolve(q.From, scope)
		if err != nil {
			return err
		}
		to, err := r.resolve(q.To, scope)
		if err != nil {
			return err
		}
		if !from.one || len(from.endpoints) != 1 {
			return model.Errorf(model.ErrInvalid, "from: %q must be one endpoint: a packet is sent from its network namespace", q.From.text)
		}
		sender := from.endpoints[0]
		out.From, out.Host = sender.Endpoint, r.endpoints[sender.Endpoint].Host
		for _, v6 := range []bool{false, true} {
			if !v6 && protocol == model.ProtoICMPv6 {
				continue
			}
			if out.Src, out.Dst = sender.Addr(v6), r.target(q.To, to, v6); out.Src.IsValid() && out.Dst.IsValid() {
				break
			}
		}
		switch {
		case len(to.services) == 0 && !to.one:
			return model.Errorf(model.ErrInvalid, "to: %q must be one endpoint, one service, or one address", q.To.text)
		case !out.Src.IsValid() || !out.Dst.IsValid():
			return model.Errorf(model.ErrInvalid, "to: %q has no address of a family that %s has and that the protocol is of", q.To.text, sender.Endpoint)
		}
		if out.Reachable, err = r.reach(q, scope); err != nil {
			return err
		}
		v6 := out.Dst.Is6()
		out.Rows = slices.DeleteFunc(out.Rows, func(row Row) bool {
			return v6 && !row.IPv6 || !v6 && !row.IPv4 || row.Service != nil && row.Service.At.Addr() != out.Dst
		})
		out.Some, out.All = false, len(out.Rows) > 0
		for _, row := range out.Rows {
			open := slices.ContainsFunc(row.Parts, func(p reachability.Part) bool { return p.Allowed })
			shut := len(row.Parts) == 0 || slices.ContainsFunc(row.Parts, func(p reachability.Part) bool { return !p.Allowed })
			out.Some, out.All = out.Some || open, out.All && !shut
			out.Receivers = append(out.Receivers, r.receivers(row, v6, scope)...)
		}
		out.Receivers = out.Receivers[:min(len(out.Receivers), maxReceivers)]
		return nil
	})
	return out, err
}

// target is the address of a family at which a subject is asked; zero = none.
func (r *clusterRows) target(s Subject, to side, v6 bool) netip.Addr {
	switch {
	case s.isAddresses():
		if a := s.addrs[0].Addr(); s.addrs[0].IsSingleIP() && a.Is6() == v6 {
			return a
		}
	case len(to.services) == 1:
		for _, k := range to.services[0].parts {
			if of, is := r.state.Services.Get(k); is && !v6 && of.IPv4.IsValid() {
				return of.IPv4
			} else if is && v6 && of.IPv6.IsValid() {
				return of.IPv6
			}
		}
	case len(to.endpoints) == 1:
		return to.endpoints[0].Addr(v6)
	}
	return netip.Addr{}
}

// receivers are the endpoints that a row of an answer leads to.
func (r *clusterRows) receivers(row Row, v6 bool, scope Scope) (out []Receiver) {
	for _, text := range row.To {
		k, err := model.ParseEndpointKey(text)
		if err != nil || !scope.Has(k.Network.Tenant) {
			continue
		}
		p, is := r.cluster.Port(k)
		if !is || r.endpoints[k] == nil || !p.Addr(v6).IsValid() {
			continue
		}
		at := Receiver{Endpoint: k, Host: r.endpoints[k].Host, Addr: p.Addr(v6)}
		if row.Service != nil && len(row.Parts) > 0 {
			at.Port = row.Parts[0].Ports.Matches()[0].Lo // of the backend alone
		}
		out = append(out, at)
	}
	return out
}
