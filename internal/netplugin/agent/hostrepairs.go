package agent

import (
	"log/slog"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// hostRepairs counts what is put back in the host's stack like what the driver puts back.
type hostRepairs struct {
	driver.Drift
	log *slog.Logger
}

// Rules implements hoststack.Repairs.
func (r *hostRepairs) Rules(table string) { r.Add(r.log, driver.DriftRules, table, 1) }

// Device implements hoststack.Repairs.
func (r *hostRepairs) Device(name string) { r.Add(r.log, driver.DriftDevice, name, 1) }
