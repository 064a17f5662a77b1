package ovs

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Verify implements driver.Verifier: it reads all flows and groups of the switch.
func (d *Driver) Verify(ctx context.Context) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.want == nil || d.conns.sw == nil || !d.flows.known {
		return 0, model.Errorf(model.ErrUnavailable, "open vswitch: the desired state is not in force")
	}
	if err := d.putFlows(ctx, *d.want, &driver.Report{}, true); err != nil {
		return 0, err
	}
	return len(d.flows.pic.ledger.installed) + len(d.flows.pic.services.groups.have), nil
}
