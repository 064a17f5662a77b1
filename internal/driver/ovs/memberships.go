package ovs

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/driver/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// nameNumbers lets those know of ports' numbers who may not wait for an Apply.
func (d *Driver) nameNumbers() {
	names := make(map[uint32]string, len(d.pic.numbers))
	for name, n := range d.pic.numbers {
		names[n] = name
	}
	d.named.Store(&names)
}

// hear hands on what the switch has sent up about memberships of multicast groups.
func (d *Driver) hear(p openflow.PacketIn) {
	r := driver.MembershipReport{Network: model.NetworkID(p.Register(pipeline.RegNetwork)), Frame: slices.Clone(p.Frame)}
	if kind, number, _ := pipeline.KindOf(p.Cookie); kind == pipeline.KindPort {
		names := d.named.Load()
		if names == nil || (*names)[number] == "" {
			return
		}
		r.Port = (*names)[number]
	}
	select {
	case d.reports <- r:
	default: // it is asked again
	}
}

// Reports implements driver.Memberships.
func (d *Driver) Reports() <-chan driver.MembershipReport { return d.reports }

// Ask implements driver.Memberships.
func (d *Driver) Ask(port string, frame []byte) error {
	names, conn := d.named.Load(), d.answerc.Load()
	if names == nil || conn == nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer yet")
	}
	for number, name := range *names {
		if name == port {
			return conn.SendPacket(number, frame)
		}
	}
	return model.Errorf(model.ErrNotFound, "open vswitch: there is no port %s", port)
}
