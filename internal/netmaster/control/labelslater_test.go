package control

import (
	"maps"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// An endpoint whose labels come later has an identity of its own until they come, or until
// netmaster hears that there are none, or that the container has ended.
func TestPendingLabelsHaveAnIdentityOfTheirOwn(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	c.put(network("n", "10.1.0.0/24"), group("web", "n"))
	later := func(e *model.Endpoint) { e.LabelsLater = true }
	g, _ := c.fresh().Groups.Get(groupKey("web"))
	labelled := c.create(endpoint("n", "known", inGroup("web"), func(e *model.Endpoint) { e.Labels = map[string]string{"app": "a"} }))
	for id, u := range map[string]EndpointUpdate{
		"labels": {Labels: map[string]string{"app": "a"}, Name: "x"}, "none": {}, "ended": {Stopped: true},
	} {
		e := c.create(endpoint("n", id, inGroup("web"), later))
		r, ok := c.fresh().Identities.identityRecords.all[tables.IdentityKey{Tenant: "default", ID: e.Identity}]
		if !ok || !r.LabelsLater || r.Group != "web" || e.Identity == g.ID {
			t.Errorf("%s: endpoint %+v has the identity %+v", id, e, r)
		}
		if list := c.view.Endpoints.withOldIdentity(model.DefaultGlobal().Filter()); len(list) > 0 {
			t.Errorf("%s: %v are to follow the label filter", id, list)
		}
		u.Key = e.Key
		c.ok(err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), u)))
		want := g.ID
		if u.Labels != nil {
			want = labelled.Identity
		}
		if now, _ := c.fresh().Endpoints.Get(e.Key); now.Identity != want || now.LabelsLater {
			t.Errorf("%s: endpoint %+v at last, want identity %d", id, now, want)
		}
	}
}

// TestFormerlyValidLabelsAreRemoved: labels that an earlier version accepted, and this one would
// refuse, do not block later reports; they are removed.
func TestFormerlyValidLabelsAreRemoved(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/24"))
	e := c.create(endpoint("n", "c1"))
	_, err := c.st.Client().Update(testContext(t), func(tx store.Tx) error {
		old, err := tables.Endpoints.Get(tx, e.Key)
		if err != nil {
			return err
		}
		old.Labels = map[string]string{"app": "web", "evil": "\u009b2J", "a\u202eb": ""}
		return tables.Endpoints.Put(tx, old)
	})
	c.ok(err)
	ill := true
	c.ok(err2(c.Endpoints.UpdateEndpoint(testContext(t), Admin(), EndpointUpdate{Key: e.Key, Unhealthy: &ill})))
	if got, _ := c.fresh().Endpoints.Get(e.Key); !got.Unhealthy || !maps.Equal(got.Labels, map[string]string{"app": "web"}) {
		t.Errorf("%+v", got)
	}
}
