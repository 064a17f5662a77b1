package ovs

import "github.com/contiv/netplugin/v2/internal/datapath/driver"

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	userSpace := d.cfg.Datapath == "netdev"
	return driver.Capabilities{
		Egress: true, Egress6: true, Routes: true, Log: true, Audit: true, AuditEstablished: true,
		Services: true, ExternalServices: true, Frontends: true, ExternalBackends: true, ClientsByTunnel: true, ServiceStats: true, RoutedNetworks: true, Bandwidth: true,
		Multicast: true, Memberships: d, TunnelProber: d, TakesUplinks: true, UserSpace: userSpace, Preparer: d, Tabled: d, Drifting: d, Verifier: d, Forgetter: d, Connections: d, Watched: d,
	}
}
