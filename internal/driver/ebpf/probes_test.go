package ebpf

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/driver"
)

// Capabilities has probes sent in the host's namespace.
func (d inHost) Capabilities() driver.Capabilities {
	can := d.Driver.Capabilities()
	can.TunnelProber = probesInHost{can.TunnelProber, d.r}
	return can
}

type probesInHost struct {
	driver.TunnelProber
	r *rig
}

func (p probesInHost) Probe(to netip.Addr, nonce uint64, size int) (err error) {
	p.r.thread.do(func() { err = p.TunnelProber.Probe(to, nonce, size) })
	return err
}
