package ovs

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// flowState keeps a ledger in step with a desired.Host. It recomputes the flows
// of what changed and of nothing else.
type flowState struct {
	ledger       *ledger
	have         desired.Host
	started      bool
	config       pipeline.Config
	numbers      map[string]uint32                            // port numbers that the flows were made with
	byNet        map[model.NetworkID]map[string]*desired.Port // ports with a number
	policies     *policies
	services     *services
	groupMembers map[string]map[desired.GroupKey]bool // multicast groups by member
	domains      map[desired.Domain]int               // of the desired state, and how many networks each has
	removed      map[desired.Domain]bool              // that the desired state has no more, and whose zones are to be emptied
}

func newFlowState() *flowState {
	l := newLedger()
	return &flowState{
		ledger: l, numbers: map[string]uint32{},
		byNet: map[model.NetworkID]map[string]*desired.Port{}, groupMembers: map[string]map[desired.GroupKey]bool{},
		policies: newPolicies(l), services: newServices(l), domains: map[desired.Domain]int{}, removed: map[desired.Domain]bool{},
	}
}

func portOwner(name string) owner { return owner{kind: pipeline.KindPort, name: name} }

func otherHost(vtep netip.Addr) owner {
	return owner{kind: pipeline.KindBase, name: vtep.String()}
}

func remoteOwner(k desired.RemoteKey) owner {
	var mac uint64
	for _, b := range k.MAC {
		mac = mac<<8 | uint64(b)
	}
	return owner{kind: pipeline.KindRemote, id: uint64(k.Network)<<48 | mac}
}

// sameSegment reports whether all flows but a network's own stay the same.
func sameSegment(a, b *desired.Network) bool {
	return a != nil && b != nil && a.Encap == b.Encap && a.Tag == b.Tag && a.Joined == b.Joined && a.Routed == b.Routed && a.Subnet == b.Subnet && a.Subnet6 == b.Subnet6
}

// update makes the ledger want what the desired state says, given the configuration
// and the numbers of the ports. A port without a number has no flows.
func (p *flowState) update(want desired.Host, c pipeline.Config, numbers map[string]uint32) {
	all := !p.started || c != p.config
	if all {
		p.ledger.set(owner{kind: pipeline.KindBase}, pipeline.Base(c))
	}
	p.policies.update(c, p.have, want)

	dirty := map[model.NetworkID]bool{} // own flows to be recomputed
	moved := map[model.NetworkID]bool{} // flows of its endpoints too
	for ch := range want.Networks.Diff(p.have.Networks) {
		dirty[ch.Key] = true
		p.count(ch.Old, -1)
		p.count(ch.New, 1)
		moved[ch.Key] = !sameSegment(ch.Old, ch.New)
	}
	ports := map[string]bool{}
	for ch := range want.Ports.Diff(p.have.Ports) {
		ports[ch.Key] = true
	}
	for ch := range want.Bandwidth.Diff(p.have.Bandwidth) {
		_, there := want.Ports.Get(ch.Key)
		ports[ch.Key] = ports[ch.Key] || there && markOf(ch.Old) != markOf(ch.New)
	}
	remotes := map[desired.RemoteKey]bool{}
	for ch := range want.Remotes.Diff(p.have.Remotes) {
		remotes[ch.Key] = true
	}
	for name, was := range p.numbers {
		if numbers[name] != was {
			ports[name] = true
		}
	}
	for name, n := range numbers {
		if p.numbers[name] != n {
			ports[name] = true
		}
	}
	any := all
	for _, m := range moved {
		any = any || m
	}
	if any {
		for k := range want.Networks.All() {
			dirty[k] = dirty[k] || all
		}
		for k, port := range want.Ports.All() {
			ports[k] = ports[k] || all || moved[port.Network]
		}
		for k, r := range want.Remotes.All() {
			remotes[k] = remotes[k] || all || moved[r.Network]
		}
	}
	p.config, p.started = c, true
	p.setOtherHosts(want, all)
	p.setNodes(want, all)
	p.services.update(c, p.have, want, p.domains, any, all)

	for name, is := range ports {
		if is {
			p.setPort(want, name, numbers[name], dirty)
		}
	}
	for k, is := range remotes {
		if is {
			r, _ := want.Remotes.Get(k)
			n, _ := want.Networks.Get(k.Network)
			if r == nil || n == nil {
				p.ledger.set(remoteOwner(k), nil)
			} else {
				p.ledger.set(remoteOwner(k), pipeline.Remote(c, n, r))
			}
		}
	}
	for id, is := range dirty {
		if !is {
			continue
		}
		o := owner{kind: pipeline.KindNetwork, id: uint64(id)}
		n, _ := want.Networks.Get(id)
		if n == nil {
			p.ledger.set(o, nil)
			continue
		}
		var local []pipeline.LocalPort
		for name, port := range p.byNet[id] {
			local = append(local, pipeline.LocalPort{Port: port, Number: p.numbers[name]})
		}
		p.ledger.set(o, pipeline.Network(c, n, local))
	}
	p.setGroups(want, ports, moved, all)
	p.have = want
}

// setGroups follows the multicast groups, and computes the changed ones of ports and
// networks.
func (p *flowState) setGroups(want desired.Host, ports map[string]bool, moved map[model.NetworkID]bool, all bool) {
	dirty := map[desired.GroupKey]bool{}
	for ch := range want.Groups.Diff(p.have.Groups) {
		dirty[ch.Key] = true
		if ch.Had {
			for _, name := range ch.Old.Ports {
				if delete(p.groupMembers[name], ch.Key); len(p.groupMembers[name]) == 0 {
					delete(p.groupMembers, name)
				}
			}
		}
		if ch.Has {
			for _, name := range ch.New.Ports {
				if p.groupMembers[name] == nil {
					p.groupMembers[name] = map[desired.GroupKey]bool{}
				}
				p.groupMembers[name][ch.Key] = true
			}
		}
	}
	for name, is := range ports {
		for k := range p.groupMembers[name] {
			dirty[k] = dirty[k] || is
		}
	}
	for k := range want.Groups.All() {
		dirty[k] = dirty[k] || all || moved[k.Network]
	}
	for k, is := range dirty {
		if !is {
			continue
		}
		o := owner{kind: pipeline.KindGroup, id: uint64(k.Network), name: k.Addr.String()}
		g, ok := want.Groups.Get(k)
		n, there := want.Networks.Get(k.Network)
		if !ok || !there || !desired.IsMulticastMember(k.Addr) {
			p.ledger.set(o, nil)
			continue
		}
		var members []pipeline.LocalPort
		for _, name := range g.Ports {
			if port := p.byNet[k.Network][name]; port != nil {
				members = append(members, pipeline.LocalPort{Port: port, Number: p.numbers[name]})
			}
		}
		p.ledger.set(o, pipeline.Group(n, k.Addr, members))
	}
}

// setOtherHosts follows the other hosts' tunnel endpoints; all = compute all their flows.
func (p *flowState) setOtherHosts(want desired.Host, all bool) {
	for ch := range want.Tunnels.Diff(p.have.Tunnels) {
		if !ch.Has {
			p.ledger.set(otherHost(ch.Key), nil)
		} else if !ch.Had {
			p.ledger.set(otherHost(ch.Key), pipeline.OtherHost(p.config, ch.Key))
		}
	}
	if all {
		for vtep := range want.Tunnels.All() {
			p.ledger.set(otherHost(vtep), pipeline.OtherHost(p.config, vtep))
		}
	}
}

func (p *flowState) setPort(want desired.Host, name string, number uint32, dirty map[model.NetworkID]bool) {
	if was, ok := p.have.Ports.Get(name); ok {
		delete(p.byNet[was.Network], name)
		if len(p.byNet[was.Network]) == 0 {
			delete(p.byNet, was.Network)
		}
		dirty[was.Network] = dirty[was.Network] || p.config.ArpMode == model.ArpFlood
	}
	delete(p.numbers, name)
	port, _ := want.Ports.Get(name)
	if port == nil || number == 0 {
		p.ledger.set(portOwner(name), nil)
		return
	}
	p.numbers[name] = number
	n, _ := want.Networks.Get(port.Network)
	if n == nil {
		p.ledger.set(portOwner(name), nil)
		return
	}
	if p.byNet[port.Network] == nil {
		p.byNet[port.Network] = map[string]*desired.Port{}
	}
	p.byNet[port.Network][name] = port
	dirty[port.Network] = dirty[port.Network] || p.config.ArpMode == model.ArpFlood
	local, rate := pipeline.LocalPort{Port: port, Number: number}, (*desired.Rate)(nil)
	rate, _ = want.Bandwidth.Get(name)
	p.ledger.set(portOwner(name), pipeline.Marked(p.config, pipeline.Port(p.config, n, local), local, markOf(rate)))
}
