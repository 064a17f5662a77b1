package ebpf

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
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

// probe sends a probe from the first host to the second one, and waits for the answer.
func (w *twoHosts) probe(to netip.Addr, size int) (err error) {
	nonce := rand.Uint64()
	w.threads[0].do(func() { err = w.drivers[0].Probe(to, nonce, size) })
	for end := time.After(10 * time.Second); err == nil; {
		select {
		case got := <-w.drivers[0].ProbeAnswers():
			if got == nonce {
				return nil
			}
		case <-end:
			err = errors.New("no answer")
		}
	}
	return err
}
