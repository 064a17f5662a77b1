package observe

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// An index of names is rebuilt at the next event after the mirrors have changed, but not
// within namesAge, and for at most a twentieth of the time (namesShare), however many
// endpoints there are.
const (
	namesAge   = 200 * time.Millisecond
	namesShare = 20
)

// flowNames gives the data plane's numbers and addresses their names, from what
// the host mirrors of the cluster. It is used by one goroutine.
type flowNames struct {
	each func(unless store.Revision, network func(model.Network), endpoint func(model.Endpoint), policy func(model.Policy), group func(model.Group)) store.Revision // statemirror.State's
	host string

	made     time.Time // zero = not yet
	took     time.Duration
	rev      store.Revision
	networks map[model.NetworkID]model.NetworkKey
	bases    map[model.NetworkID]model.NetworkID // of segments (compile/segment.go), by whose number endpoints are found
	stations map[stationAt]model.Endpoint
	tiers    map[model.PolicyKey]model.Tier
}

type stationAt struct {
	network model.NetworkID
	addr    netip.Addr
}

// forget frees the index.
func (n *flowNames) forget() {
	n.networks, n.bases, n.stations, n.tiers, n.made = nil, nil, nil, nil, time.Time{}
}

// refresh rebuilds the index, if something may have changed.
func (n *flowNames) refresh() {
	unless, begin := n.rev, time.Now()
	if n.made.IsZero() {
		unless = -1
	} else if begin.Sub(n.made) < max(namesAge, namesShare*n.took) {
		return
	}
	networks, ids := map[model.NetworkID]model.NetworkKey{}, map[model.NetworkKey]model.NetworkID{}
	stations, tiers, segments := map[stationAt]model.Endpoint{}, map[model.PolicyKey]model.Tier{}, map[model.NetworkID]model.NetworkKey{}
	rev := n.each(unless, func(net model.Network) {
		networks[net.ID], ids[net.Key] = net.Key, net.ID
	}, func(e model.Endpoint) {
		for _, a := range []netip.Addr{e.IPv4, e.IPv6, e.MAC.LinkLocal()} {
			if a.IsValid() {
				stations[stationAt{ids[e.Key.Network], a}] = e
			}
		}
	}, func(p model.Policy) { tiers[p.Key] = p.Tier }, func(g model.Group) {
		if g.Segment != 0 {
			segments[g.Segment] = g.NetworkKey()
		}
	})
	n.made = time.Now()
	if rev == unless {
		return
	}
	n.bases = map[model.NetworkID]model.NetworkID{}
	for id, k := range segments {
		if of, known := ids[k]; known {
			n.bases[id] = of
		}
	}
	n.rev, n.networks, n.stations, n.tiers = rev, networks, stations, tiers
	n.took = n.made.Sub(begin)
}

// base is the network by whose number the endpoints of a network, or of a segment of it, are found.
func (n *flowNames) base(network model.NetworkID) model.NetworkID {
	if base, is := n.bases[network]; is {
		return base
	}
	return network
}

// key returns the key of the endpoint that an address is on a network; empty = none is known.
func (n *flowNames) key(network model.NetworkID, addr netip.Addr) string {
	if e, ok := n.stations[stationAt{n.base(network), addr}]; ok {
		return e.Key.String()
	}
	return ""
}

// resolve turns an event of the driver into one for people.
func (n *flowNames) resolve(e driver.FlowEvent) api.FlowEvent {
	out := api.FlowEvent{Time: e.Time, Host: n.host, Count: e.Count}
	if e.Kind == driver.FlowLost {
		out.Event = api.FlowLost
		return out
	}
	n.refresh()
	e.Network = n.base(e.Network)
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
		out.Event, out.Verdict, out.Audited, out.Living = api.FlowWouldDeny, "allow", e.Policy, e.Established
	case e.Kind == driver.FlowWouldAllow:
		out.Event, out.Verdict, out.Audited, out.Living = api.FlowWouldAllow, "deny", e.Policy, e.Established
	case e.Reason == driver.DropPolicy:
		out.Event, out.Verdict, out.Reason = api.FlowDrop, "deny", e.Reason
	default:
		out.Event, out.Verdict, out.Reason = api.FlowDrop, "drop", e.Reason
	}
	out.From, out.To = n.peer(e.Network, e.Src, e.SrcPort, e.SrcMAC), n.peer(e.Network, e.Dst, e.DstPort, e.DstMAC)
	if out.Protocol = protocolName(e.Proto); e.ARP {
		out.Protocol = "arp"
	} else if strings.HasPrefix(out.Protocol, "icmp") && !e.Established {
		t := int(e.ICMPType)
		out.ICMPType = &t
	}
	for _, d := range e.Decisions {
		out.Decisions = append(out.Decisions, n.rule(d, e.Kind == driver.FlowDrop || e.Kind == driver.FlowWouldDeny))
	}
	if e.Kind != driver.FlowConnection && len(out.Decisions) == 1 {
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
	if e, ok := n.stations[stationAt{id, a}]; ok {
		p.Endpoint, p.Container, p.Name = e.Key.String(), e.Container, e.Name
		p.Labels, p.LabelsLeftOut = someLabels(e.Labels)
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

// rule names the rule or default that decided at one end.
func (n *flowNames) rule(d driver.Decision, denied bool) api.FlowRule {
	r := api.FlowRule{Direction: string(d.Direction)}
	switch {
	case d.Rule != "":
	case denied && d.Tier == 0:
		r.Default = "closed" // the policy is not loaded
		return r
	case denied:
		r.SetDefault(d.Tier.String(), d.DefaultOf)
		return r
	default:
		return r
	}
	k, err := model.ParseRuleKey(d.Rule)
	if err != nil { // compiled in the place of a rule that could not be
		r.Rule = d.Rule
		return r
	}
	policy := model.PolicyKey{Tenant: k.Tenant, Name: k.Policy}
	r.Rule, r.Policy = string(k.Rule), policy.String()
	if tier, ok := n.tiers[policy]; ok {
		r.Tier = tier.String()
	}
	return r
}

// someLabels returns as many of an endpoint's labels as an event has room for, by
// name, and how many it left out.
func someLabels(all map[string]string) (some map[string]string, leftOut int) {
	const longest = 6 // bytes that JSON makes of one
	most := 0
	for k, v := range all {
		most += longest * (len(k) + len(v) + 1)
	}
	if most <= api.MaxFlowLabels {
		return all, 0
	}
	some = map[string]string{}
	room := api.MaxFlowLabels
	for _, k := range sortedKeys(all) {
		b, err := json.Marshal(map[string]string{k: all[k]})
		if room -= len(b); err != nil || room < 0 {
			break
		}
		some[k] = all[k]
	}
	return some, len(all) - len(some)
}
