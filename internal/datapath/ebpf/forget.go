package ebpf

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// forgetter is a Driver as it forgets connections.
type forgetter struct{ driver *Driver }

// Forget implements driver.Forgetter. It reads all connections, as the expiry does.
func (f forgetter) Forget(_ context.Context, all []driver.Connection) error {
	d := f.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return model.Errorf(model.ErrUnavailable, "ebpf: the driver is closed")
	}
	// Domains are left out: an equal connection in another one has to begin again.
	gone := map[connKey]bool{}
	for _, c := range all {
		k := connKey{Proto: uint8(c.Protocol), Lo: toAddr(c.Src.Addr()), Hi: toAddr(c.Dst.Addr()), LoPort: c.Src.Port(), HiPort: c.Dst.Port()} //nolint:gosec // a byte of a packet
		if !isBefore(k.Lo, k.Hi, k.LoPort, k.HiPort) {
			k.Lo, k.Hi, k.LoPort, k.HiPort = k.Hi, k.Lo, k.HiPort, k.LoPort
		}
		gone[k] = true
	}
	plain := func(k connKey) connKey {
		k.Domain, k.Flip, k.Pad = 0, 0, 0
		return k
	}
	if err := d.dp.conntrack.translations.end(func(t translation) bool { return gone[plain(t.ClientKey)] }); err != nil {
		return err
	}
	return d.dp.conns.sweep(func(k connKey, _ conn) bool { return gone[plain(k)] })
}
