package apiserver

import (
	"cmp"
	"context"
	"slices"

	"github.com/contiv/netplugin/v2/api"
)

// toldAlready are notices of a netmaster's health that the status tells in other words.
var toldAlready = []string{"same-store", "fabric"}

// judgeHealth tells of the notices in the health of the netmaster that answers, such as
// that it does not follow Kubernetes: without, people would hear of them from probes alone.
func (s *server) judgeHealth(ctx context.Context, o *api.ClusterStatus) {
	for _, c := range s.cluster.Health(ctx).Conditions {
		if c.Notice && !c.OK && !slices.Contains(toldAlready, c.Name) {
			o.Notices = append(o.Notices, "netmaster "+cmp.Or(s.address, "here")+": "+c.Name+": "+c.Message)
		}
	}
}
