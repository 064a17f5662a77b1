package observe

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// tunnelCarriesMTU holds while no container on a VXLAN network has a bigger MTU than the
// tunnel carries, as happens when the MTU of the underlay shrinks. Both drivers tell
// senders what fits then, so it is a notice.
func tunnelCarriesMTU(_ context.Context, a *Observer, s *observation) error {
	vxlan := map[model.NetworkKey]bool{}
	for _, n := range s.Networks.All() {
		vxlan[n.Key] = n.Encap == model.EncapVXLAN
	}
	fits := a.cfg.Underlay.TunnelMTU()
	count, most := 0, 0
	var first model.EndpointKey
	for _, e := range s.finished {
		if e.Result == nil || e.Result.MTU <= fits || !vxlan[e.Endpoint.Network] {
			continue
		}
		if count++; e.Result.MTU > most {
			most, first = e.Result.MTU, e.Endpoint
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("the MTU of the interface with %s (--vtep-ip) has shrunk: tunnels carry %d bytes, and containers on VXLAN networks have an MTU of up to %d (%d of them, such as %s); make it bigger again, or restart the containers",
		a.cfg.VTEP, fits, most, count, first)
}
