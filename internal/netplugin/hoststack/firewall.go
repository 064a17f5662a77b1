package hoststack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// comment marks our rules in chains of Docker or the administrator.
const comment = "contiv"

// firewall is what Stack knows of the host's firewall.
type firewall struct {
	changed        atomic.Bool                       // since it was looked at, maybe
	decidingChains atomic.Pointer[map[chainKey]bool] // chains and sets that decided
	of             *desired.HostNAT                  // for which it was looked at; nil = nothing, or not yet
	ports          bool                              // likewise: some are published
	servers        [2]uint16                         // likewise: ports of the name server, by IPv4 and IPv6
	err            error                             // what it came to
	names          error                             // likewise, of what containers ask the name server
}

// passFirewall lets containers' forwarded packets through a firewall that drops them. A
// packet must be accepted by every chain of its hook, so an accept in a table of our own
// is worth nothing: where iptables' chain FORWARD drops it, as Docker's policy and a last
// rule that rejects do, exceptions belong into that chain, or into DOCKER-USER if Docker
// has made it. Docker's policy keeps anybody beyond the host from beginning connections to
// containers; our own table does the same for ours. Where FORWARD lets containers'
// packets through, our rules are removed from those chains. Other chains that drop them are
// in the error. Without look, only what may have changed is looked at.
func (s *Stack) passFirewall(want Config, ports, look bool) {
	f, p, servers := &s.firewall, want.Private, [2]uint16{want.NameServer, want.NameServer6}
	if changed := f.changed.Swap(false); !look && !changed && f.err == nil && f.names == nil && f.ports == ports && f.servers == servers && reflect.DeepEqual(f.of, p) {
		return
	}
	known := f.of != nil && reflect.DeepEqual(f.of, p) && f.err == nil
	f.of, f.ports, f.servers = p, ports, servers
	var put bool
	put, f.err = f.pass(p, ports)
	if put && known {
		s.log.Warn("the host's firewall was changed and dropped containers' packets; the rules that accept them are restored")
	}
}

// firewallProblems notes what the firewall drops.
func (s *Stack) firewallProblems(note func(object string, err error)) {
	note("firewall", s.firewall.err)
	note("name server", s.firewall.names)
}

// pass makes the exceptions, and tells whether some were put in.
func (f *firewall) pass(p *desired.HostNAT, ports bool) (put bool, err error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	all, err := c.ListChains()
	if err != nil {
		if p == nil {
			return false, nil // a kernel without nftables has nothing of ours
		}
		return false, fmt.Errorf("read nftables: %w", err)
	}
	looked := map[chainKey]bool{}
	var drop, unnamed []string
	f.names = nil
	for i, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		var probes []probe
		if p != nil {
			probes = probesOf(p, family, ports)
		}
		these, some, err := passFirewall(c, all, family, p, probes, looked)
		if put = put || some; err != nil {
			return put, err
		}
		drop = append(drop, these...)
		if p != nil {
			e := newEvaluation(c)
			e.visited = looked
			unnamed = append(unnamed, e.chainsThatDrop(all, family, namesOf(p, family, f.servers[i]))...)
			f.names = errors.Join(f.names, e.err)
		}
	}
	f.decidingChains.Store(&looked)
	if len(unnamed) > 0 {
		slices.Sort(unnamed)
		f.names = model.Errorf(model.ErrUnavailable, "DNS fails in containers: the firewall's chains %s drop queries to this host's name server or its answers; accept UDP and TCP on interface %s, from and to the ports of --dns",
			strings.Join(slices.Compact(unnamed), ", "), p.Interface)
	}
	if len(drop) == 0 {
		return put, nil
	}
	slices.Sort(drop)
	hint := ""
	if slices.ContainsFunc(drop, func(name string) bool { return strings.HasPrefix(name, "firewalld ") }) {
		hint = " (a zone for the interface and a policy from any zone to it: docs/how-to/outside.md has the lines of firewall-cmd)"
	}
	return put, model.Errorf(model.ErrUnavailable, "the firewall's chains %s drop containers' packets to or from outside this host; accept interface %s in them, in and out%s",
		strings.Join(slices.Compact(drop), ", "), p.Interface, hint)
}

// Addresses far beyond this host; nothing is sent to them.
var (
	probeAddr4 = netip.MustParseAddr("198.41.0.4")
	probeAddr6 = netip.MustParseAddr("2001:503:ba3e::2:30")
)

// probesOf are packets that have to pass: what a container sends beyond the host, the
// answer, and if ports are published a packet that was led to one.
func probesOf(p *desired.HostNAT, family nftables.TableFamily, ports bool) []probe {
	beyond, container := probeAddr4, p.Subnet.Addr().Next()
	if family == nftables.TableFamilyIPv6 {
		if beyond, container = probeAddr6, p.Subnet6.Addr().Next(); !p.Subnet6.IsValid() {
			return nil
		}
	}
	up := ""
	if routes, err := netlink.RouteGet(net.IP(beyond.AsSlice())); err == nil && len(routes) > 0 {
		if link, err := netlink.LinkByIndex(routes[0].LinkIndex); err == nil {
			up = link.Attrs().Name
		}
	}
	in, out := netip.AddrPortFrom(container, 40000), netip.AddrPortFrom(beyond, 443)
	hook, proto := *nftables.ChainHookForward, model.ProtoTCP
	all := []probe{
		{hook: hook, proto: proto, in: p.Interface, out: up, src: in, dst: out, state: expr.CtStateBitNEW},
		{hook: hook, proto: proto, in: up, out: p.Interface, src: out, dst: in, state: expr.CtStateBitESTABLISHED},
	}
	if ports {
		all = append(all, probe{hook: hook, proto: proto, in: up, out: p.Interface, src: out, dst: netip.AddrPortFrom(container, 80), state: expr.CtStateBitNEW, status: ipsDNAT})
	}
	return all
}

// namesOf are packets that have to pass for containers to have names: a question to the
// host's name server at a port, and the answer.
func namesOf(p *desired.HostNAT, family nftables.TableFamily, port uint16) []probe {
	here, container := p.Addr, p.Subnet.Addr().Next()
	if family == nftables.TableFamilyIPv6 {
		here, container = p.Addr6, p.Subnet6.Addr().Next()
	}
	if port == 0 || !here.IsValid() {
		return nil
	}
	if container == here {
		container = container.Next()
	}
	asks, answers := netip.AddrPortFrom(container, 40000), netip.AddrPortFrom(here, port)
	return []probe{
		{hook: *nftables.ChainHookInput, proto: model.ProtoUDP, in: p.Interface, src: asks, dst: answers, state: expr.CtStateBitNEW, status: ipsDNAT},
		{hook: *nftables.ChainHookOutput, proto: model.ProtoUDP, out: p.Interface, src: answers, dst: asks, state: expr.CtStateBitESTABLISHED, status: ipsDNAT},
	}
}

// chainsThatDrop names the chains of others that drop one of the probes of their hook.
func (e *evaluation) chainsThatDrop(all []*nftables.Chain, family nftables.TableFamily, probes []probe) (names []string) {
	for _, ch := range all {
		if ch.Hooknum == nil || ch.Table.Family != family && ch.Table.Family != nftables.TableFamilyINet || isOurs(ch.Table.Name) {
			continue
		}
		if slices.ContainsFunc(probes, func(p probe) bool { return p.hook == *ch.Hooknum && e.drops(ch, p) }) {
			names = append(names, ch.Table.Name+" "+ch.Name)
		}
	}
	return names
}

// passFirewall does so for one family, which has no egress without probes. It returns
// which chains drop some all the same, and whether exceptions were put in.
func passFirewall(c *nftables.Conn, all []*nftables.Chain, family nftables.TableFamily, p *desired.HostNAT, probes []probe, looked map[chainKey]bool) (drop []string, put bool, err error) {
	e := newEvaluation(c)
	e.visited = looked
	drops := func(ch *nftables.Chain) bool {
		return slices.ContainsFunc(probes, func(p probe) bool { return e.drops(ch, p) })
	}
	var filter []*nftables.Chain // of iptables
	var at *nftables.Chain
	for _, ch := range all {
		if ch.Table.Family == family && ch.Table.Name == "filter" && (ch.Name == "FORWARD" || ch.Name == "DOCKER-USER") {
			filter = append(filter, ch)
		}
	}
	e.skip = comment
	for _, ch := range filter {
		if ch.Name == "FORWARD" && len(probes) > 0 && (ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop || drops(ch)) {
			at = ch
		}
	}
	for _, ch := range filter {
		if at != nil && ch.Name == "DOCKER-USER" {
			at = ch
		}
	}
	for _, ch := range filter {
		changed, err := placeRules(c, ch, ch == at, p)
		if err != nil {
			return nil, put, fmt.Errorf("chain %s: %w", ch.Name, err)
		}
		put = put || changed && ch == at
		e.rules = map[chainKey][]*nftables.Rule{}
	}
	e.skip = ""
	return e.chainsThatDrop(all, family, probes), put, e.err
}

func isOurs(table string) bool {
	return slices.Contains([]string{TableName, ServicesTable, GuardTable, FabricTable}, table)
}

// placeRules makes each of our rules be in a foreign chain once, before all
// foreign rules; with no rules wanted it removes ours. It tells whether it changed anything.
func placeRules(c *nftables.Conn, ch *nftables.Chain, wanted bool, p *desired.HostNAT) (changed bool, err error) {
	rules, err := c.GetRules(ch.Table, ch)
	if err != nil {
		return false, err
	}
	ours := slices.DeleteFunc(slices.Clone(rules), func(r *nftables.Rule) bool {
		text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		return text != comment
	})
	const needed = 2
	if wanted && len(ours) == needed && len(rules) >= needed && rules[0].Handle == ours[0].Handle && rules[1].Handle == ours[1].Handle {
		return false, nil
	}
	if !wanted && len(ours) == 0 {
		return false, nil
	}
	for _, r := range ours {
		if err := c.DelRule(r); err != nil {
			return false, err
		}
	}
	if wanted {
		for _, match := range [][]expr.Any{iptablesName(oif(p.Interface)), iptablesName(iif(p.Interface))} {
			c.InsertRule(&nftables.Rule{
				Table: ch.Table, Chain: ch, Exprs: append(match, accept()...),
				UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
			})
		}
	}
	err = c.Flush()
	if isMissing(err) {
		return false, nil // somebody has just removed the chain; the next look finds out
	}
	return err == nil, err
}

// iptablesName compares as much of an interface's name as iptables does, so that
// it can list the rule.
func iptablesName(match []expr.Any) []expr.Any {
	for _, e := range match {
		if c, ok := e.(*expr.Cmp); ok {
			c.Data = c.Data[:len(strings.TrimRight(string(c.Data), "\x00"))+1]
		}
	}
	return match
}
