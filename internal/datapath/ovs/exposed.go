package ovs

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Clients outside ask at shared addresses without a domain: the address leads them to the
// first exposed service's, and ports of services of other domains lead on to these.

func outsideOwner(a netip.Addr) owner {
	return owner{kind: pipeline.KindService, name: "outside at " + a.String()}
}

// reopen marks what leads clients outside to an address.
func (ch *servicesChange) reopen(a netip.Addr) {
	if len(ch.frontends.open[a]) == 0 {
		delete(ch.frontends.open, a)
	}
	a = ch.want.FrontendAddr(a)
	ch.frontends.outside[a] = true
	for d := range ch.serving {
		ch.touchVIP(domainAddress{d, a})
	}
}

// exposedAt are the services that are exposed at an address, and at all nodes' the ones at each
// node's by itself: lists, each sorted.
func (ch *servicesChange) exposedAt(a netip.Addr) (lists [][]model.ServiceKey) {
	lists = append(lists, ch.frontends.open[a])
	if a.IsUnspecified() {
		for n := range ch.want.NodeAddrs.All() {
			if own := ch.frontends.open[n]; len(own) > 0 && n.Is6() == a.Is6() {
				lists = append(lists, own)
			}
		}
	}
	return lists
}

// severalDomains reports whether services of several domains are exposed at an address.
func (ch *servicesChange) severalDomains(a netip.Addr) bool {
	first := desired.Domain(0)
	for _, keys := range ch.exposedAt(a) {
		for _, k := range keys {
			d := ch.addrs[k].domain
			if first != 0 && d != first {
				return true
			}
			first = d
		}
	}
	return false
}

// leadsOutside is the service by which clients outside ask at an address: the first one
// by key whose shared VIP has it.
func (ch *servicesChange) leadsOutside(a netip.Addr) (first *desired.Service, d desired.Domain) {
	for _, keys := range ch.exposedAt(a) {
		for _, k := range keys {
			in := ch.addrs[k].domain
			if !a.IsUnspecified() && !ch.hasFrontends(ch.want, domainAddress{in, a}) {
				continue
			}
			if first == nil || compareServices(k, first.Key) < 0 {
				first, _ = ch.want.Services.Get(k)
				d = in
			}
			break
		}
	}
	return first, d
}

// setOutside makes the flows that lead clients outside at an address to services of other
// domains than the address itself does. Of several with a port the first by key has it.
func (ch *servicesChange) setOutside(a netip.Addr) {
	var flows []openflow.Flow
	_, d := ch.leadsOutside(a)
	if entry := ch.frontends.vips[domainAddress{d, a}]; entry != nil && !ch.want.IsNode(a) && ch.severalDomains(a) {
		var ports []pipeline.OutsidePort
		keys := slices.Concat(ch.exposedAt(a)...)
		slices.SortFunc(keys, compareServices)
		has := map[frontendPort]bool{}
		for _, k := range slices.Compact(keys) {
			own := ch.addrs[k]
			x := ch.frontends.vips[domainAddress{own.domain, a}]
			if x == nil || !x.live {
				continue
			}
			p := pipeline.OutsidePort{To: x.flows}
			p.To.Open = own.network
			for _, f := range own.frontends {
				if ch.want.FrontendAddr(f.at.addr) != a || f.port == 0 {
					continue
				}
				p.Protocol, p.Port, p.Node = f.proto, f.port, netip.Addr{}
				if f.at.addr != a {
					p.Node = f.at.addr
				}
				if f.at.domain = 0; !has[f] && own.domain != d {
					ports = append(ports, p)
				}
				has[f] = true
			}
		}
		flows = pipeline.OutsideFlows(ch.config, entry.flows, ports)
	}
	ch.ledger.set(outsideOwner(a), flows)
}
