package control

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// An endpoint whose labels are told later has an identity of its own until they
// are, or until it is told that there are none, or that the container has ended.
func TestLabelsLater(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"), group("web", "n"))
	later := func(e *model.Endpoint) { e.LabelsLater = true }
	g, _ := c.fresh().Group(groupKey("web"))
	labelled := c.create(endpoint("n", "known", inGroup("web"), func(e *model.Endpoint) { e.Labels = map[string]string{"app": "a"} }))
	for id, u := range map[string]EndpointUpdate{
		"labels": {Labels: map[string]string{"app": "a"}, Name: "x"}, "none": {}, "ended": {Stopped: true},
	} {
		e := c.create(endpoint("n", id, inGroup("web"), later))
		r, ok := identityRecords.in(c.fresh()).all[tables.IdentityKey{Tenant: "default", ID: e.Identity}]
		if !ok || !r.LabelsLater || r.Group != "web" || e.Identity == g.ID {
			t.Errorf("%s: endpoint %+v has the identity %+v", id, e, r)
		}
		if list := c.view.unfollowed(model.DefaultGlobal().Filter()); len(list) > 0 {
			t.Errorf("%s: %v are to follow the label filter", id, list)
		}
		u.Key = e.Key
		c.ok(c.UpdateEndpoint(ctx, u))
		want := g.ID
		if u.Labels != nil {
			want = labelled.Identity
		}
		if now, _ := c.fresh().Endpoint(e.Key); now.Identity != want || now.LabelsLater {
			t.Errorf("%s: endpoint %+v at last, want identity %d", id, now, want)
		}
	}
}
