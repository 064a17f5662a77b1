package observe

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// networksCarryMTU holds while no container has a bigger MTU than what carries its network:
// the tunnel, or the uplink of VLAN networks. Both drivers tell senders what fits then, so
// it cuts nothing off.
func networksCarryMTU(_ context.Context, cfg *Config, s *observation) error {
	u := cfg.Underlay
	return errors.Join(
		carriesMTU(s, model.EncapVXLAN, u.TunnelMTU(), fmt.Sprintf("the MTU of the interface with %s (--vtep-ip) has shrunk: tunnels carry", cfg.VTEP)),
		carriesMTU(s, model.EncapVLAN, u.UplinkMTU(), "the MTU of the uplink (--vlan-uplinks) has shrunk: VLAN networks carry"),
	)
}

// carriesMTU looks at containers on networks of one encapsulation, which carry packets of fits
// bytes.
func carriesMTU(s *observation, encap model.Encap, fits int, what string) error {
	of := map[model.NetworkKey]bool{}
	for _, n := range s.Networks.All() {
		of[n.Key] = n.Encap == encap
	}
	count, most := 0, 0
	var first model.EndpointKey
	for _, e := range s.finished {
		if e.Result == nil || e.Result.MTU <= fits || !of[e.Endpoint.Network] {
			continue
		}
		if count++; e.Result.MTU > most {
			most, first = e.Result.MTU, e.Endpoint
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%s %d bytes, and containers on them have an MTU of up to %d (%d of them, such as %s)",
		what, fits, most, count, first)
}
