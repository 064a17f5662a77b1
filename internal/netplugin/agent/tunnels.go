package agent

import (
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/tunnelprobe"
)

// newTunnelProber returns what tests tunnels; nil = the driver cannot.
func newTunnelProber(cfg *Config, plane driver.TunnelProber, m *mirror, tell func()) *tunnelprobe.Prober {
	if plane == nil || !cfg.VTEP.IsValid() {
		return nil
	}
	peers := func() (out []tunnelprobe.Peer, changed <-chan struct{}) {
		list, _, changed := m.cluster.Hosts.Peers()
		for _, p := range list {
			if p.AnswersProbes && !p.Away {
				out = append(out, tunnelprobe.Peer{Name: p.Name, Addr: p.Addr})
			}
		}
		return out, changed
	}
	return tunnelprobe.New(tunnelprobe.Config{
		Host: cfg.Host, VTEP: cfg.VTEP, Port: cfg.VXLANPort, Driver: plane,
		Size: m.underlay.TunnelMTU, Peers: peers, Changed: tell, Log: cfg.Log,
	})
}
