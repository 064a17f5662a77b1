package control

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTenantRevisions: what is no endpoint of a tenant counts when it is written, and
// apart when it is deleted; neither endpoints nor other tenants do.
func TestTenantRevisions(t *testing.T) {
	c := base(t)
	for _, step := range []struct {
		name             string
		do               func()
		written, deleted bool
	}{
		{"nothing", func() {}, false, false},
		{"an endpoint with the labels of another", func() { c.put(endpoint("v1", "c77", inGroup("web"))) }, false, false},
		{"an endpoint of an identity that nobody had", func() {
			c.put(endpoint("v1", "c78", func(e *model.Endpoint) { e.Labels = map[string]string{"app": "new"} }))
		}, true, false},
		{"a rule", func() { c.put(rule("p1", "9")) }, true, false},
		{"a rule of another tenant", func() { c.put(rule("blue:p1", "9")) }, false, false},
		{"a rule that goes", func() { c.ok(c.remove(model.RuleKey{Tenant: "default", Policy: "p1", Rule: "9"})) }, false, true},
	} {
		w0, d0 := c.fresh().TenantRevisions("default")
		step.do()
		v := c.fresh()
		w, d := v.TenantRevisions("default")
		if (w > w0) != step.written || (d > d0) != step.deleted || max(w, d) > v.Revision() {
			t.Errorf("%s: written at %d, before %d; deleted at %d, before %d", step.name, w, w0, d, d0)
		}
	}
}
