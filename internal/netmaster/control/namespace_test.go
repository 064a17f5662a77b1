package control

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNamespaceIsPartOfTheIdentity: namespace and named ports are part of an endpoint's identity, its
// namespace's labels are not; these change whom a selector selects all the same.
func TestNamespaceIsPartOfTheIdentity(t *testing.T) {
	c := newCluster(t)
	c.put(network("net", "10.0.0.0/16"))
	fence := c.leader()
	if c.fresh().Revisions.GlobalRevision() == 0 {
		t.Error("the settings were never written")
	}
	http := []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 80}}
	identities := map[string]model.Identity{}
	for i, e := range []model.Endpoint{{}, {Namespace: "a"}, {Namespace: "a"}, {Namespace: "b"}, {Namespace: "a", Ports: http}, {Ports: http}} {
		e.Key = model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(fmt.Sprint("e", i))}
		identities[string(e.Key.ID)] = c.create(e).Identity
	}
	if len(slices.Compact(slices.Sorted(maps.Values(identities)))) != 5 || identities["e1"] != identities["e2"] {
		t.Errorf("identities %v, want five, one of e1 and e2", identities)
	}
	team := model.Selector{Tenant: "default", Namespaces: []model.Requirement{{Key: "team", Operator: model.OpIn, Values: []string{"x"}}}}
	selected := func() (out []model.EndpointID) {
		for _, e := range c.fresh().Endpoints.EndpointsSelected(team) {
			out = append(out, e.Key.ID)
		}
		slices.Sort(out)
		return out
	}
	put := func(n model.Namespace) {
		t.Helper()
		c.ok(c.Kubernetes.PutNamespace(testContext(t), fence, valid(n)))
	}
	last := c.fresh().Revisions.GlobalRevision()
	for i, step := range []struct {
		do   func()
		want []model.EndpointID
	}{
		{func() {}, nil},
		{func() { put(model.Namespace{Name: "a", Labels: map[string]string{"team": "x"}}) }, []model.EndpointID{"e1", "e2", "e4"}},
		{func() { put(model.Namespace{Name: "b", Labels: map[string]string{"team": "x"}}) }, []model.EndpointID{"e1", "e2", "e3", "e4"}},
		{func() { put(model.Namespace{Name: "a"}) }, []model.EndpointID{"e3"}},
		{func() { c.ok(c.Kubernetes.DeleteNamespace(testContext(t), fence, "b")) }, nil},
	} {
		if step.do(); !slices.Equal(selected(), step.want) {
			t.Errorf("step %d: %v, want %v", i, selected(), step.want)
		}
		// Each write counts, and no deletion, which a host that lists later never hears of.
		if rev, wrote := c.fresh().Revisions.GlobalRevision(), i > 0 && i < 4; wrote != (rev > last) {
			t.Errorf("step %d: what policies depend on was written at %d, before at %d", i, rev, last)
		} else {
			last = rev
		}
	}
}
