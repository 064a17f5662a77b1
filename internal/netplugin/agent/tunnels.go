package agent

import "github.com/contiv/netplugin/v2/internal/netplugin/tunnelprobe"

// newTunnelProber returns what tests tunnels; nil = the driver cannot.
func (a *Agent) newTunnelProber() *tunnelprobe.Prober {
	if a.can.TunnelProber == nil || !a.cfg.VTEP.IsValid() {
		return nil
	}
	peers := func() (out []tunnelprobe.Peer, changed <-chan struct{}) {
		list, _, changed := a.cluster.Hosts.Peers()
		for _, p := range list {
			if p.AnswersProbes && !p.Away {
				out = append(out, tunnelprobe.Peer{Name: p.Name, Addr: p.Addr})
			}
		}
		return out, changed
	}
	return tunnelprobe.New(tunnelprobe.Config{
		Host: a.cfg.Host, VTEP: a.cfg.VTEP, Port: a.cfg.VXLANPort, Driver: a.can.TunnelProber,
		Size: a.underlay.TunnelMTU, Peers: peers, Tell: func() { a.PokeStatus() }, Log: a.log,
	})
}
