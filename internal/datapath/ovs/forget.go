package ovs

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Forget implements driver.Forgetter. Echo requests are left to time out: Open vSwitch 3.1 ends
// when it is asked to forget one by OpenFlow. Their state lets in echo replies alone.
func (d *Driver) Forget(ctx context.Context, all []driver.Connection) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.want == nil || d.conns.sw == nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer")
	}
	var tracked []openflow.Connection
	for _, c := range all {
		if !c.Protocol.HasPorts() {
			continue
		}
		domain := domainIn(*d.want, c.Network)
		zones := []uint16{zoneOf(domain), pipeline.RelayZone}
		if zone, is := d.flows.pic.services.zones[domain]; is {
			zones = append(zones, zone)
		}
		for _, zone := range zones {
			tracked = append(tracked, openflow.Connection{Zone: zone, Proto: uint8(c.Protocol), Src: c.Src, Dst: c.Dst}) //nolint:gosec // a byte of a packet
		}
	}
	return d.flows.flush(ctx, tracked)
}
