package ovs

import (
	"context"
	"errors"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// disarmed takes back a fault that an Apply did not meet.
type disarmed struct {
	*Driver
	ns string
}

func (d disarmed) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	defer d.setFault(nil)
	rep, err := d.Driver.Apply(ctx, want)
	if err == nil { // the driver is not where its switch is
		err = inNamespace(d.ns, func() error {
			for _, p := range d.ownMark.ensureFilter(want) {
				return p.Err
			}
			return nil
		})
	}
	if ovstest.Kernel() { // what is compared is verdicts, not how soon they are in force
		_, purged := control(ctx, d.cfg.RunDir, purgeCommand)
		return rep, errors.Join(err, purged)
	}
	return rep, err
}

// setFault makes the driver ask fn before every write.
func (d *Driver) setFault(fn func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fn
}
