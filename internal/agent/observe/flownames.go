package observe

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// namesAge is how old an index may get that lacks what is looked for.
const namesAge = 200 * time.Millisecond

// flowNames gives the data plane's numbers and addresses their names, from what
// the host mirrors of the cluster. It is used by one goroutine.
type flowNames struct {
	each func(unless store.Revision, network func(model.Network), endpoint func(model.Endpoint)) store.Revision // picture.Cluster's
	host string

	made     time.Time
	rev      store.Revision
	networks map[model.NetworkID]model.NetworkKey
	stations map[stationAt]model.Endpoint
}

type stationAt struct {
	network model.NetworkID
	addr    netip.Addr
}

// forget frees the index.
func (n *flowNames) forget() { n.networks, n.stations, n.made = nil, nil, time.Time{} }

// refresh makes the index anew, unless nothing can have changed or it was made
// a moment ago.
func (n *flowNames) refresh() bool {
	if !n.made.IsZero() && time.Since(n.made) < namesAge {
		return false
	}
	networks, ids := map[model.NetworkID]model.NetworkKey{}, map[model.NetworkKey]model.NetworkID{}
	stations := map[stationAt]model.Endpoint{}
	unless := n.rev
	if n.made.IsZero() {
		unless = -1
	}
	rev := n.each(unless, func(net model.Network) {
		networks[net.ID], ids[net.Key] = net.Key, net.ID
	}, func(e model.Endpoint) {
		for _, a := range []netip.Addr{e.IPv4, e.IPv6, e.MAC.LinkLocal()} {
			if a.IsValid() {
				stations[stationAt{ids[e.Key.Network], a}] = e
			}
		}
	})
	if rev == unless {
		return false
	}
	n.made, n.rev, n.networks, n.stations = time.Now(), rev, networks, stations
	return true
}

// station finds who has an address on a network.
func (n *flowNames) station(id model.NetworkID, a netip.Addr) (model.Endpoint, bool) {
	e, ok := n.stations[stationAt{id, a}]
	if !ok && n.refresh() {
		e, ok = n.stations[stationAt{id, a}]
	}
	return e, ok
}

// resolve turns an event of the driver into one for people.
func (n *flowNames) resolve(e driver.FlowEvent) api.FlowEvent {
	out := api.FlowEvent{Time: e.Time, Host: n.host, Count: e.Count}
	if e.Kind == driver.FlowLost {
		out.Event = api.FlowLost
		return out
	}
	if _, ok := n.networks[e.Network]; !ok && e.Network != 0 {
		n.refresh()
	}
	if k, ok := n.networks[e.Network]; ok {
		out.Tenant, out.Network = string(k.Tenant), string(k.Name)
	}
	switch {
	case e.Kind == driver.FlowConnection:
		out.Event, out.Verdict = api.FlowConnection, "allow"
	case e.Kind == driver.FlowLogged:
		out.Event = api.FlowLogged
		for _, d := range e.Decisions {
			out.Verdict = string(d.Action)
		}
	case e.Kind == driver.FlowWouldDeny:
		out.Event, out.Verdict, out.Audited = api.FlowWouldDeny, "allow", e.Policy
	case e.Kind == driver.FlowWouldAllow:
		out.Event, out.Verdict, out.Audited = api.FlowWouldAllow, "deny", e.Policy
	case e.Reason == driver.DropPolicy:
		out.Event, out.Verdict, out.Reason = api.FlowDrop, "deny", e.Reason
	default:
		out.Event, out.Verdict, out.Reason = api.FlowDrop, "drop", e.Reason
	}
	out.From, out.To = n.peer(e.Network, e.Src, e.SrcPort, e.SrcMAC), n.peer(e.Network, e.Dst, e.DstPort, e.DstMAC)
	if out.Protocol = protocolName(e.Proto); e.ARP {
		out.Protocol = "arp"
	} else if strings.HasPrefix(out.Protocol, "icmp") {
		t := int(e.ICMPType)
		out.ICMPType = &t
	}
	for _, d := range e.Decisions {
		out.Decisions = append(out.Decisions, ruleNames(d, e.Kind == driver.FlowDrop || e.Kind == driver.FlowWouldDeny))
	}
	if e.Reason == driver.DropPolicy && len(out.Decisions) == 1 {
		out.Direction = out.Decisions[0].Direction
	}
	return out
}

func (n *flowNames) peer(id model.NetworkID, a netip.Addr, port uint16, mac model.MAC) api.FlowPeer {
	p := api.FlowPeer{Port: int(port)}
	if mac != (model.MAC{}) {
		p.MAC = mac.String()
	}
	if !a.IsValid() {
		return p
	}
	p.Address = a.String()
	if e, ok := n.station(id, a); ok {
		p.Endpoint, p.Container = e.Key.String(), e.Container
		if e.Group != "" {
			p.Group = model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}.String()
		}
	}
	return p
}

func protocolName(p model.Protocol) string {
	switch p {
	case model.AnyProtocol:
		return ""
	case model.ProtoICMPv6:
		return "icmp6"
	case model.ProtoSCTP:
		return "sctp"
	default:
		if p == model.ProtoTCP || p == model.ProtoUDP || p == model.ProtoICMP {
			return p.String()
		}
		return strconv.Itoa(int(p))
	}
}

// ruleNames names who decided at one end.
func ruleNames(d driver.Decision, denied bool) api.FlowRule {
	r := api.FlowRule{Direction: string(d.Direction)}
	if d.Rule == "" {
		if denied {
			r.Default = tierName(d.Tier)
		}
		return r
	}
	k, err := model.ParseRuleKey(d.Rule)
	if err != nil { // compiled in the place of what could not be
		r.Rule = d.Rule
		return r
	}
	r.Rule, r.Policy = string(k.Rule), model.PolicyKey{Tenant: k.Tenant, Name: k.Policy}.String()
	return r
}

// tierName says whose default denied: a tier's, or nobody's while the policy is
// not loaded.
func tierName(t model.Tier) string {
	if t == 0 {
		return "closed"
	}
	return t.String()
}
