package statemirror

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

const (
	// maxDenied bounds how many addresses ports of VLAN networks deny: each takes
	// room in the policy of every such port.
	maxDenied = 256
	// maxPrevious bounds how many previous addresses of one host's netplugin are kept.
	maxPrevious = 64
)

// listener is an address and port at which a part of the control plane answers.
type listener struct {
	At netip.AddrPort `json:"at"`
	// Host is whose netplugin answers there; empty = a netmaster or the store.
	Host string `json:"host,omitempty"`
}

func (l listener) compare(m listener) int {
	return cmp.Or(l.At.Compare(m.At), strings.Compare(l.Host, m.Host))
}

// deniedTargets is what ports deny to containers that get past their host.
type deniedTargets struct {
	denied []netip.AddrPort
	// omitted counts what found no room in it, by the host whose netplugin answers there;
	// "" = netmasters and the store.
	omitted map[string]int
}

// Which addresses come first in deniedTargets. Those of netplugins come last: first one of each
// host, then a second one of each, so that a host with many takes no room from others.
const (
	rankNetmaster = iota
	rankStore
	rankMachine  // other addresses of machines with a netmaster or the store
	rankPrevious // netmasters and the store at addresses that they had before
	rankOwn      // this host's netplugin
	rankAgents
)

// ranked has the rank of each address.
type ranked map[netip.AddrPort]struct {
	rank int
	host string
}

func (r ranked) add(rank int, at netip.AddrPort, host string) {
	if was, there := r[at]; !there || rank < was.rank {
		r[at] = struct {
			rank int
			host string
		}{rank, host}
	}
}

// firstDenied returns the first maxDenied of them.
func (r ranked) firstDenied() deniedTargets {
	all := slices.SortedFunc(maps.Keys(r), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(r[a].rank, r[b].rank), a.Compare(b))
	})
	p := deniedTargets{denied: all}
	if len(all) > maxDenied {
		p.denied, p.omitted = all[:maxDenied], map[string]int{}
		for _, at := range all[maxDenied:] {
			p.omitted[r[at].host]++
		}
	}
	return p
}

// keepPreviousLocked keeps addresses that a source may cease to name.
func (p *ControlPlane) keepPreviousLocked(was []listener) {
	kept := map[string]int{}
	for l := range p.previous {
		kept[l.Host]++
	}
	now := time.Now()
	for _, l := range was {
		if _, again := p.previous[l]; !again && l.Host != "" {
			if kept[l.Host]++; kept[l.Host] > maxPrevious {
				continue // the host reports others all the time
			}
		}
		p.previous[l] = now
	}
}

// rankLocked ranks what sources name, and what they named lately.
func (p *ControlPlane) rankLocked() ranked {
	all := ranked{}
	agents := map[string][]netip.AddrPort{}
	add := func(rank int, l listener) {
		if l.Host != "" {
			agents[l.Host] = append(agents[l.Host], l.At)
			return
		}
		all.add(rank, l.At, "")
	}
	for source, list := range p.sources {
		rank := rankNetmaster
		if source == sourceStore {
			rank = rankStore
		}
		for _, l := range list {
			add(rank, l)
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(p.previous), listener.compare) {
		if time.Since(p.previous[l]) > controlGrace {
			delete(p.previous, l)
			continue
		}
		add(rankPrevious, l)
	}
	// A host protects all of its own addresses, even if the registry does not have them.
	for _, at := range cluster.Reachable(p.Listening()) {
		all.add(rankOwn, at, string(p.config.Host))
	}
	for host, list := range agents {
		for i, at := range list { // sorted, previous ones last
			all.add(rankAgents+i, at, host)
		}
	}
	return all
}

func (p *ControlPlane) buildLocked() *hoststack.Control {
	k := &hoststack.Control{}
	inspection := []uint16{desired.DefaultRESTPort}
	for i, text := range p.Listening() {
		if _, port, err := net.SplitHostPort(text); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err == nil {
				k.Ports = append(k.Ports, uint16(n))
				if i == 0 { // other hosts' inspection ports are likely to be the same, also where a host does not tell
					inspection = append(inspection, uint16(n))
				}
			}
		}
	}
	inspection = slices.Compact(inspection)
	named := p.rankLocked()
	// Where a machine is a host as well, it answers at both of its addresses. Hosts are
	// many and such machines are few, so only these are kept.
	twins := map[netip.Addr][]netip.Addr{}
	for at, x := range named {
		if x.rank < rankOwn {
			twins[at.Addr()] = nil
		}
	}
	k.Targets = make([]netip.AddrPort, 0, len(p.hostAddrs)*len(inspection)+len(named))
	for _, h := range p.hostAddrs {
		for i, a := range h {
			if !a.IsGlobalUnicast() || i == 1 && a == h[0] {
				continue
			}
			if all, ours := twins[a]; ours && h[1-i].IsGlobalUnicast() {
				twins[a] = append(all, h[1-i])
			}
			for _, port := range inspection {
				k.Targets = append(k.Targets, netip.AddrPortFrom(a, port))
			}
		}
	}
	local, past := hoststack.LocalAddresses(), ranked{}
	for at, x := range named {
		a := at.Addr()
		if x.rank < rankOwn {
			if a.IsLoopback() || a.IsUnspecified() || local[a] {
				k.Ports = append(k.Ports, at.Port())
			}
			for _, b := range slices.Concat(twins[a], p.machines[a]) {
				if local[b] {
					k.Ports = append(k.Ports, at.Port())
				}
				past.add(max(x.rank, rankMachine), netip.AddrPortFrom(b, at.Port()), x.host)
			}
		}
		if !a.IsLoopback() && !a.IsUnspecified() {
			past.add(x.rank, at, x.host)
		}
	}
	p.denied = past.firstDenied()
	k.Targets = slices.AppendSeq(k.Targets, maps.Keys(past))
	slices.Sort(k.Ports)
	k.Ports = slices.Compact(k.Ports)
	slices.SortFunc(k.Targets, netip.AddrPort.Compare)
	k.Targets = slices.Compact(k.Targets)
	return k
}

// ObjectInspection is the object of the problem that ports do not deny all that netplugins of
// other hosts listen at.
const ObjectInspection = "netplugins of other hosts"

// Problems says which addresses the ports of containers do not deny. Only the runner's
// goroutine calls it.
func (p *ControlPlane) Problems() (problems []compile.Problem) {
	if p.Off {
		return nil
	}
	agents := maps.Clone(p.denied.omitted)
	delete(agents, "")
	const tells = "containers on VLAN and infra networks here are kept from %d addresses and ports of the control plane, and not from %d more %s; have these listen at fewer addresses and ports"
	if n := p.denied.omitted[""]; n > 0 {
		problems = append(problems, compile.Problem{Object: "control plane", Text: fmt.Sprintf(tells, maxDenied, n, "of netmasters and the store")})
	}
	if len(agents) > 0 {
		most := slices.MaxFunc(slices.Sorted(maps.Keys(agents)), func(a, b string) int { return cmp.Compare(agents[a], agents[b]) })
		sum := 0
		for _, n := range agents {
			sum += n
		}
		problems = append(problems, compile.Problem{Object: ObjectInspection, Text: fmt.Sprintf(tells, maxDenied, sum, fmt.Sprintf("of netplugins, %d of them on host %s", agents[most], most))})
	}
	return problems
}
