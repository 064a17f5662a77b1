package analysis

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// controlRows are the parts of the control plane that the store knows, by the row that names
// each: hosts keep containers from them.
type controlRows map[string]netip.AddrPort

// enter enters an event of the registry; it reports whether that is such a row's.
func (c controlRows) enter(e store.Event) bool {
	_, known := c[e.KV.Key]
	delete(c, e.KV.Key)
	s, is := cluster.Decode(e.KV)
	if !is || !slices.Contains(cluster.ControlServices, s.ServiceName) {
		return known
	}
	at, err := netip.ParseAddr(s.HostAddr)
	if at = at.Unmap(); err == nil && at.IsGlobalUnicast() && s.Port > 0 && s.Port < 1<<16 {
		c[e.KV.Key] = netip.AddrPortFrom(at, uint16(s.Port))
	}
	return true
}

// targets are what rows name, and that with what hosts take for granted of each host.
func (c controlRows) targets(hosts map[model.HostName]model.Host) (named, all []netip.AddrPort) {
	for _, at := range c {
		named = append(named, at)
	}
	all = append(all, named...)
	for _, h := range hosts {
		for _, a := range []netip.Addr{h.Control, h.VTEP} {
			if a.IsGlobalUnicast() {
				all = append(all, netip.AddrPortFrom(a, desired.DefaultRESTPort))
			}
		}
	}
	return named, all
}
