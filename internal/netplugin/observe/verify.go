package observe

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// Verify compares what this host knows with the store, and its data plane with that. What
// differs in the data plane is put back.
func (a *Observer) Verify(ctx context.Context) api.HostVerification {
	out := api.HostVerification{Host: string(a.cfg.Host)}
	if a.cfg.Can.Verifier == nil || a.cfg.Can.Drifting == nil {
		out.Error = fmt.Sprintf("the driver %s cannot compare its data plane", a.cfg.DriverName)
		return out
	}
	compared, err := a.cfg.Cluster.Comparer.CompareWithStore(ctx)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Rows = compared.Rows
	for _, d := range compared.Differences {
		out.Differences = append(out.Differences, "the host's state differs from the store: "+d)
	}
	began := time.Now()
	if out.Entries, err = a.cfg.Can.Verifier.Verify(ctx); err == nil {
		err = a.runSync(ctx) // interfaces and programs, and what is not in force
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	for _, name := range a.cfg.Can.Drifting.RecentDrift(began) {
		out.Differences = append(out.Differences, "the data plane differed, and was repaired: "+name)
	}
	o, _ := a.cfg.Reached.Get()
	out.Revision = o.Report.Revision
	if o.Err != nil {
		out.Error = o.Err.Error()
	}
	for _, p := range o.Report.Problems {
		if !p.Unmanaged {
			out.Differences = append(out.Differences, "not in force: "+p.Object+": "+p.Err.Error())
		}
	}
	for _, port := range o.Refused {
		out.Differences = append(out.Differences, "not in force: port "+port+": "+o.Report.Ports.Err(port).Error())
	}
	return out
}
