package ovs

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Tunnel probes: flows answer requests (pipeline/probes.go), and send answers here.

// ProbeAnswers implements driver.TunnelProber.
func (d *Driver) ProbeAnswers() <-chan uint64 { return d.responder.probed }

// Probe implements driver.TunnelProber.
func (d *Driver) Probe(to netip.Addr, nonce uint64, size int) error {
	names, conn := d.responder.named.Load(), d.responder.answerc.Load()
	if names == nil || conn == nil || names.tunnel == 0 {
		return model.Errorf(model.ErrUnavailable, "open vswitch: there is no tunnel yet, or the switch does not answer")
	}
	return conn.SendTunnelled(names.tunnel, driver.ProbeVNI, to, driver.ProbeFrame(nonce, size))
}

// hearProbe hands on an answer.
func (a *responder) hearProbe(p openflow.PacketIn) {
	if nonce, ok := driver.ReadProbeAnswer(p.Frame); ok {
		select {
		case a.probed <- nonce:
		default: // it counts as lost, and the next one does not
		}
	}
}
