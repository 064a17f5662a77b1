package ovs

import "github.com/contiv/netplugin/v2/internal/driver"

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		WayOut: true, WayOut6: true, Routes: true, Services: d.cfg.Datapath == "netdev", ClientsByTunnel: d.cfg.Datapath == "netdev", Log: true, Audit: true, Living: true,
		UserSpace: d.cfg.Datapath == "netdev", Preparer: d, Tabled: d, Drifting: d,
	}
}
