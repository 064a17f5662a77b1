package ovs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The switch keeps translations until they time out, so translations that end with a change
// (docs/design/services.md) are searched in its list, and flushed one by one.

// connection is a translation as the switch lists it: reply is how the backend
// answers.
type connection struct {
	proto       model.Protocol
	orig, reply tuple
}

func readConnection(line string) (c connection, ok bool) {
	name, rest, _ := strings.Cut(line, ",")
	c.proto, ok = trackedProtocols[name]
	var ok2, ok3 bool
	c.orig, rest, ok2 = tupleOf(rest, "orig=(")
	c.reply, _, ok3 = tupleOf(rest, "reply=(")
	return c, ok && ok2 && ok3
}

// judgedTuple is the connection that policy judges.
func (c connection) judgedTuple() tuple {
	return tuple{c.orig.src, c.reply.src, c.reply.dport, c.reply.sport}
}

// endTranslations ends translations that do not go on with the desired state, in the
// domains where some may have, and ends client affinity of former services.
func (t *flows) endTranslations(ctx context.Context) error {
	s := t.pic.services
	if len(s.check) == 0 && len(s.oldZones) == 0 && len(s.forget) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.patience)
	defer cancel()
	if len(s.forget) > 0 {
		var mods []openflow.Mod
		for n := range s.forget {
			mods = append(mods, openflow.Mod{All: true, Flow: openflow.Flow{Cookie: pipeline.AffineMagic | uint64(n)}, CookieMask: ^uint64(0)})
		}
		if err := t.commit(ctx, mods, true); err != nil {
			return err
		}
		clear(s.forget)
	}
	clients := map[domainAddress]bool{}
	for _, p := range t.pic.have.Ports.All() {
		for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
			clients[domainAddress{domainIn(t.pic.have, p.Network), a}] = true
		}
	}
	if len(s.check) > 0 || len(s.oldZones) > 0 {
		t.daemon.purgeKernel(ctx, "services")
	}
	for domain, zone := range s.check {
		if err := t.sweepZone(ctx, domain, zone, clients, false); err != nil {
			return err
		}
		delete(s.check, domain)
	}
	clear(s.ended)
	clear(s.frontends.ended)
	for domain, zones := range s.oldZones {
		for _, zone := range zones {
			if err := t.sweepZone(ctx, domain, zone, clients, true); err != nil {
				return err
			}
		}
		delete(s.oldZones, domain)
	}
	return nil
}

// invalidatesTranslations reports whether translations may end when a service changes.
func invalidatesTranslations(was, now *desired.Service) bool {
	if was.IPv4 != now.IPv4 || was.IPv6 != now.IPv6 || was.Exposed && !now.Exposed {
		return true
	}
	ends, udp := frontendsChanged(was, now)
	if ends {
		return true
	}
	for _, p := range was.Ports {
		to, ok := now.PortOf(p.Protocol, p.Port)
		if !ok || p.Protocol == model.ProtoUDP && to.Backend != p.Backend {
			return true
		}
		udp = udp || p.Protocol == model.ProtoUDP
	}
	if !udp {
		return false
	}
	for c := range now.Backends.Diff(was.Backends) {
		if c.Had && (!c.Has || c.Old.IPv4 != c.New.IPv4 || c.Old.IPv6 != c.New.IPv6 || invalidatesUDP(c.Old, c.New, false) || invalidatesUDP(c.Old, c.New, true)) {
			return true
		}
	}
	return false
}

// invalidatesUDP reports whether UDP translations of a family to a backend may end when it
// changes.
func invalidatesUDP(was, now *desired.Backend, v6 bool) bool {
	before, after := was.Serving(v6), now.Serving(v6)
	return after.State == desired.BackendUnhealthy || after.Port != before.Port
}

// sweepZone ends the translations in a zone that do not go on, or all.
func (t *flows) sweepZone(ctx context.Context, domain desired.Domain, zone uint16, clients map[domainAddress]bool, all bool) error {
	text, err := control(ctx, t.cfg.RunDir, "dpctl/dump-conntrack", t.daemon.datapath(), fmt.Sprint("zone=", zone))
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: list translations: %w", err)
	}
	keep := translationFilter{t.pic.services, t.pic.have, domain, clients, map[*desired.Service]map[netip.Addr]*desired.Backend{}}
	var ended []openflow.Connection
	for line := range strings.Lines(text) {
		if c, ok := readConnection(line); ok && (all || !keep.goesOn(c)) {
			judged := connection{proto: c.proto, orig: c.judgedTuple()}
			if ended = append(ended, c.tracked(zone), judged.tracked(zoneOf(domain))); !clients[domainAddress{domain, c.orig.src}] {
				ended = append(ended, judged.tracked(pipeline.RelayZone))
			}
		}
	}
	return t.flush(ctx, ended)
}

// flush deletes connections from connection tracking, by the control socket where the switch
// cannot by OpenFlow.
func (t *flows) flush(ctx context.Context, ended []openflow.Connection) error {
	err := t.conns.sw.FlushTracked(ctx, ended)
	if e := (*openflow.Error)(nil); errors.As(err, &e) { // of an older Open vSwitch
		for _, c := range ended {
			if err := t.daemon.flushTracked(ctx, c); err != nil {
				t.cfg.Log.Debug("a connection was not forgotten; it may have ended", "connection", c, "error", err)
			}
		}
		return nil
	}
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
	}
	return nil
}

// tracked names the connection in a zone.
func (c connection) tracked(zone uint16) openflow.Connection {
	return openflow.Connection{
		Zone: zone, Proto: uint8(c.proto),
		Src: netip.AddrPortFrom(c.orig.src, c.orig.sport), Dst: netip.AddrPortFrom(c.orig.dst, c.orig.dport),
	}
}

// flushTracked forgets a connection by the switch's control socket, and fails where
// there is none. Open vSwitch 3.1.0 takes no connection beside a datapath's name, others
// need it where there is more than one.
func (d *daemon) flushTracked(ctx context.Context, t openflow.Connection) error {
	family := "nw"
	if t.Src.Addr().Is6() {
		family = "ipv6"
	}
	args := []string{d.datapath(), fmt.Sprint("zone=", t.Zone), fmt.Sprintf("ct_%[1]s_src=%[2]s,ct_%[1]s_dst=%[3]s,ct_nw_proto=%[4]d,ct_tp_src=%[5]d,ct_tp_dst=%[6]d",
		family, t.Src.Addr(), t.Dst.Addr(), t.Proto, t.Src.Port(), t.Dst.Port())}
	_, err := control(ctx, d.cfg.RunDir, "dpctl/flush-conntrack", args[1:]...)
	if err != nil {
		_, err = control(ctx, d.cfg.RunDir, "dpctl/flush-conntrack", args...)
	}
	return err
}

// translationFilter tells which translations of a domain go on with a desired state.
type translationFilter struct {
	*services
	host    desired.Host
	domain  desired.Domain
	clients map[domainAddress]bool
	byAddr  map[*desired.Service]map[netip.Addr]*desired.Backend
}

func (k translationFilter) goesOn(c connection) bool {
	client, vip, backend := domainAddress{k.domain, c.orig.src}, domainAddress{k.domain, c.orig.dst}, domainAddress{k.domain, c.reply.src}
	s, port := k.serviceAt(k.host, vip, c.proto, c.orig.dport)
	here := k.clients[client] // else its address may have been a virtual one, as a node's was
	if s == nil || k.ended[vip] || !here && (!s.Exposed || !k.isOutside(c.orig.src)) || here && k.ended[client] || k.users[backend].n == 0 && !k.isOutside(c.reply.src) || k.ended[backend] {
		return false
	}
	if c.proto != model.ProtoUDP {
		return true
	}
	if k.byAddr[s] == nil {
		k.byAddr[s] = map[netip.Addr]*desired.Backend{}
		for _, b := range s.Backends.All() {
			k.byAddr[s][b.IPv4], k.byAddr[s][b.IPv6] = b, b
		}
	}
	b := k.byAddr[s][c.reply.src]
	v6 := c.reply.src.Is6()
	return b != nil && b.Serving(v6).State != desired.BackendUnhealthy && b.PortFor(v6, port) == c.reply.sport
}

// isOutside reports whether an address is in none of the domain's subnets and of none of
// its endpoints.
func (k translationFilter) isOutside(a netip.Addr) bool {
	for _, n := range k.host.Networks.All() {
		if n.Domain() == k.domain && n.Contains(a) {
			return false
		}
	}
	return k.users[domainAddress{k.domain, a}].n == 0
}

// findTranslations looks for what a former driver has left: domains with
// translations, and services whose clients stay with their backends.
func (t *flows) findTranslations(ctx context.Context) error {
	s := t.pic.services
	for k, body := range t.pic.ledger.installed {
		if k[0] != byte(pipeline.Output) {
			continue
		}
		f, err := openflow.FromParts(k, body)
		if err != nil {
			continue
		}
		if domain, zone, ok := pipeline.TranslationsOf(f); ok {
			if s.zones[domain] != zone {
				s.oldZones[domain] = append(s.oldZones[domain], zone)
			} else {
				s.check[domain] = zone
			}
		}
	}
	return t.conns.sw.DumpFlows(ctx, openflow.Filter{Table: uint8(pipeline.SessionAffinity), Cookie: pipeline.AffineMagic, CookieMask: pipeline.MagicMask},
		func(f openflow.FlowStats) {
			n := uint32(f.Flow.Cookie)
			x, _ := t.pic.have.Services.Get(s.named[n])
			if x == nil || x.Affinity == 0 {
				s.forget[n] = true
			}
		})
}
