package netctl

import (
	"context"
	"slices"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// judgeReplicas returns what is wrong with the netmasters that --netmaster names beside the one
// that has answered with some findings: one that cannot use the store is not registered in it,
// so the others do not know of it.
func judgeReplicas(ctx context.Context, c *api.Client, found []api.Finding) (out []api.Finding) {
	for _, r := range c.OtherReplicas(ctx) {
		where := "netmaster " + r.URL
		switch {
		case r.Err != nil:
			f := condition.MasterNotAnswering.Finding(where, "it does not answer netctl: "+r.Err.Error())
			f.Severity = api.SeverityError
			out = append(out, f)
		case !r.Health.Ready:
			for _, x := range r.Health.Conditions {
				f := condition.MasterFinding(where, x)
				if !x.OK && x.Severity == api.SeverityError && !slices.ContainsFunc(found, func(o api.Finding) bool { return o.Text == f.Text || isSameAlarm(o, x) }) {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// isSameAlarm reports whether a finding says of the store what a netmaster says of its space.
func isSameAlarm(f api.Finding, c api.Condition) bool {
	return f.Name == condition.StoreAlarm.Name() && c.Name == condition.MasterSpace.Name()
}
