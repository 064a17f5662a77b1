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

// Entries implements hostservices.Repairs.
func (r *hostRepairs) Entries(table string, n int) {
	r.Add(r.log, driver.DriftEntry, "map "+table+" of services for this host's own processes", n)
}

// Program implements hostservices.Repairs.
func (r *hostRepairs) Program(name string) {
	r.Add(r.log, driver.DriftProgram, name+" of services for this host's own processes", 1)
}
