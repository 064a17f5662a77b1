package apiserver

import (
	"slices"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// reportedElsewhere are conditions of a netmaster's health that the cluster's findings have in
// other words.
var reportedElsewhere = []*condition.Condition{
	condition.MasterSameStore, condition.MasterFabric, condition.MasterFabricObjects,
}

// judgeHealth tells of the health of the netmaster that answers, such as that it does not
// follow Kubernetes: without, people would hear of it from probes alone.
func (s *diagnosis) judgeHealth(of facts) (out []api.Finding) {
	for _, c := range of.health.Conditions {
		if c.OK || slices.ContainsFunc(reportedElsewhere, func(f *condition.Condition) bool { return f.Name() == c.Name }) {
			continue
		}
		if c.Name == condition.MasterSpace.Name() && slices.ContainsFunc(of.stores, func(x api.StoreServer) bool { return len(x.Alarms) > 0 }) {
			continue // the server's finding says it
		}
		f := condition.MasterFinding(s.ownName(), c)
		alive := func(h api.Host) bool { return h.State != api.HostAway }
		if c.Name == condition.MasterClientsTrust.Name() && !slices.ContainsFunc(of.hosts, alive) {
			f.Severity = api.SeverityError // they are all that there is of the cluster
		}
		out = append(out, f)
	}
	return out
}
