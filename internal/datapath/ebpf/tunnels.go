package ebpf

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// putTunnels gives every other host's tunnel endpoint a number, which it keeps while
// it is in the desired state: connections remember it. No other one gets that number soon.
func (x *routing) putTunnels(run *applyRun) error {
	if !run.scratch && !differs(run.want.Tunnels, run.last.Tunnels) {
		return nil
	}
	wanted := map[tunnelSource]bool{}
	for a := range run.want.Tunnels.All() {
		wanted[toTunnel(a)] = true
	}
	for at, n := range x.Tunnels.have {
		if x.last = max(x.last, n); wanted[at] && x.Reverse.have[n] == at {
			continue
		}
		if err := x.Tunnels.del(at); err != nil {
			return err
		}
	}
	for n, at := range x.Reverse.have {
		if x.Tunnels.have[at] == n {
			continue
		}
		if err := x.Reverse.del(n); err != nil {
			return err
		}
	}
	for at := range wanted {
		if _, there := x.Tunnels.have[at]; there {
			continue
		}
		x.last++
		err := x.Reverse.put(x.last, at) // first: a lookup that finds the number finds the rest
		if err == nil {
			err = x.Tunnels.put(at, x.last)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			run.problem("tunnels of other hosts", err)
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
