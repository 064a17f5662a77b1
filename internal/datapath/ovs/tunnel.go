package ovs

import (
	"maps"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// markedName is a second VXLAN port, which copies the DSCP of what it is given to the
// outer header. The first one does not: who has no profile that marks must not choose
// the physical network's classes.
const markedName = tunnelName + "Tos"

// markedTunnel is that port. Two ports of a switch have to differ in what they take in:
// this one takes VNI 0, which no network has.
func markedTunnel(tunnel newPort) newPort {
	out := tunnel
	out.name, out.options = markedName, maps.Clone(tunnel.options)
	delete(out.options, "key")
	out.options["in_key"], out.options["out_key"], out.options["tos"] = "0", "flow", "inherit"
	return out
}

// marksDSCP reports whether a port of a desired state marks what it sends.
func marksDSCP(want desired.Host) bool {
	for _, r := range want.Bandwidth.All() {
		if r.DSCP != 0 {
			return true
		}
	}
	return false
}

// markOf is what a port's rate marks with; nil = it has none.
func markOf(r *desired.Rate) uint8 {
	if r == nil {
		return 0
	}
	return r.DSCP
}

// optionsDiffer reports whether a port has not the options that it should; of others that
// it has nothing is said.
func optionsDiffer(h portState, want newPort) bool {
	if h.iface == nil {
		return false
	}
	for k, v := range want.options {
		if h.iface.Options[k] != v {
			return true
		}
	}
	return h.iface.Options[localIP] != want.options[localIP]
}

// tunnelMoved reports whether somebody has changed where the tunnel leads.
func (s *ports) tunnelMoved(host *desired.Host) bool {
	if s.conns.db == nil {
		return false
	}
	want := s.infrastructure(*host)[tunnelName]
	s.conns.db.mu.Lock()
	defer s.conns.db.mu.Unlock()
	h := s.conns.db.port(tunnelName)
	return s.ours(h) && optionsDiffer(h, want)
}

// tunnelProblem is what is wrong with the tunnel port, nil when nothing is.
func tunnelProblem(problems []driver.Problem) error {
	for _, p := range problems {
		if p.Object == "interface "+tunnelName {
			return p.Err
		}
	}
	return nil
}
