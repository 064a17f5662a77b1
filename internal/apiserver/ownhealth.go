package apiserver

import (
	"cmp"
	"context"
	"slices"

	"github.com/contiv/netplugin/v2/api"
)

// ClientsTrust is the condition of a netmaster whose certificate no client refuses again and
// again.
const ClientsTrust = "clients-trust"

// toldAlready are notices of a netmaster's health that the status tells in other words.
var toldAlready = []string{"same-store", "fabric"}

// judgeHealth tells of the notices in the health of the netmaster that answers, such as
// that it does not follow Kubernetes: without, people would hear of them from probes alone.
func (s *server) judgeHealth(ctx context.Context, o *api.ClusterStatus) {
	for _, c := range s.cluster.Health(ctx).Conditions {
		text := "netmaster " + cmp.Or(s.address, "here") + ": " + c.Name + ": " + c.Message
		switch {
		case !c.Notice || c.OK || slices.Contains(toldAlready, c.Name):
		case c.Name == ClientsTrust && !slices.ContainsFunc(o.Hosts, func(h api.Host) bool { return h.State != api.HostAway }):
			o.Wrong, o.Well = append(o.Wrong, text), false // they are all that there is of the cluster
		default:
			o.Notices = append(o.Notices, text)
		}
	}
}
