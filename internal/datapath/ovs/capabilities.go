package ovs

import "github.com/contiv/netplugin/v2/internal/datapath/driver"

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	userSpace := d.cfg.Datapath == "netdev"
	return driver.Capabilities{
		WayOut: true, WayOut6: true, Routes: true, Log: true, Audit: true, Living: true,
		Services: true, ServicesOutside: true, Faces: true, ForeignBackends: true, ClientsByTunnel: true, ServiceStats: true, Native: true, Bandwidth: true,
		Multicast: true, Memberships: d, TunnelProber: d, TakesUplinks: true, UserSpace: userSpace, Preparer: d, Tabled: d, Drifting: d, Watched: d,
	}
}
