package ebpf

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// putTunnels gives every other host's tunnel endpoint a number, which it keeps while
// it is in the picture: connections remember it. No other one gets that number soon.
func (p *applyRun) putTunnels() error {
	if !p.scratch && !differs(p.want.Tunnels, p.last.Tunnels) {
		return nil
	}
	wanted := map[tunnelSource]bool{}
	for a := range p.want.Tunnels.All() {
		wanted[toTunnel(a)] = true
	}
	for at, n := range p.tunnels.have {
		if p.lastTunnel = max(p.lastTunnel, n); wanted[at] && p.ends.have[n] == at {
			continue
		}
		if err := p.tunnels.del(at); err != nil {
			return err
		}
	}
	for n, at := range p.ends.have {
		if p.tunnels.have[at] == n {
			continue
		}
		if err := p.ends.del(n); err != nil {
			return err
		}
	}
	for at := range wanted {
		if _, there := p.tunnels.have[at]; there {
			continue
		}
		p.lastTunnel++
		err := p.ends.put(p.lastTunnel, at) // first: whoever finds the number finds the rest
		if err == nil {
			err = p.tunnels.put(at, p.lastTunnel)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			p.problem("tunnels of other hosts", err)
			return nil
		}
	}
	return nil
}

func differs[K, V comparable](a, b desired.Map[K, V]) bool {
	for range a.Diff(b) {
		return true
	}
	return false
}

// toTunnel is a tunnel endpoint's address as the programs compare it.
func toTunnel(a netip.Addr) (s tunnelSource) {
	s.Family, s.VTEP = toVTEP(a)
	return s
}
