package control

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestActorWithoutRights: the zero actor reads no tenant, and changes no object of a host.
func TestActorWithoutRights(t *testing.T) {
	c := newCluster(t)
	c.put(model.Tenant{Name: "blue"})
	c.fresh()
	var a Actor
	if s := a.Scope(); !s.Limited() || s.Has("blue") || s.Has("") || len(s.Tenants()) > 0 {
		t.Errorf("scope %+v", s)
	}
	if _, err := c.Put(testContext(t), a, c.Networks.ChangeNetwork(valid(infraNetwork("blue:i", "10.1.0.0/24")))); err == nil {
		t.Error("it makes an infra network")
	}
	if hosts, err := c.Hosts.List(testContext(t), a); err != nil || len(hosts) > 0 {
		t.Errorf("hosts %v, %v", hosts, err)
	}
}
