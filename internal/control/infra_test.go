package control

import (
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

func infraNetwork(key string, subnets ...string) model.Network {
	n := network(key, subnets...)
	n.Type = model.NetworkInfra
	return n
}

// TestInfraIndex: an infra network is in its tenant's record, for all hosts; one whose
// interface or route would meet another's is refused; with containers it is kept, index
// and all, and with none but hosts' own endpoints it goes, with these.
func TestInfraIndex(t *testing.T) {
	c := newCluster(t)
	ctx := testContext(t)
	indexed := func() []model.NetworkName {
		t.Helper()
		tenant, _ := c.fresh().Tenant("blue")
		return tenant.Infra
	}
	c.put(model.Tenant{Name: "blue"}, model.Tenant{Name: "red"}, infraNetwork("blue:b", "10.2.0.0/16"), infraNetwork("blue:a", "10.1.0.0/16"), network("blue:plain", "10.9.0.0/16"))
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"a", "b"}) {
		t.Fatalf("indexed are %v", got)
	}
	c.refused(model.ErrConflict, "one interface of a name", func() error { return c.try(infraNetwork("red:a", "10.7.0.0/16")) })
	c.refused(model.ErrConflict, `infra network "blue:b"`, func() error { return c.try(infraNetwork("red:x", "10.2.7.0/24")) })
	c.put(network("red:x", "10.2.7.0/24")) // as a network of type data it may be

	k := model.NetworkKey{Tenant: "blue", Name: "a"}
	create := func(id string) {
		t.Helper()
		valid, err := model.Check(model.Endpoint{Key: model.EndpointKey{Network: k, ID: model.EndpointID(id)}, Host: "h1"})
		if err == nil {
			_, _, err = c.CreateEndpoint(ctx, valid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	create("h1-native-intf")
	create("c1")
	c.fresh()
	c.refused(model.ErrInUse, `active endpoints, for one "c1"`, func() error { return c.DeleteNetwork(ctx, k) })
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"a", "b"}) {
		t.Fatalf("after a deletion that was refused, indexed are %v", got)
	}
	if eps := c.fresh().EndpointsOfNetwork(k); len(eps) != 2 {
		t.Fatalf("after a deletion that was refused, its endpoints are %v", eps)
	}
	if _, _, err := c.DeleteEndpoint(ctx, model.EndpointKey{Network: k, ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	if err := c.DeleteNetwork(ctx, k); err != nil {
		t.Fatal(err)
	}
	if got := indexed(); !slices.Equal(got, []model.NetworkName{"b"}) {
		t.Errorf("after a deletion, indexed are %v", got)
	}
	if eps := c.fresh().EndpointsOfHost("h1"); len(eps) != 0 {
		t.Errorf("after a deletion, the host has %v", eps)
	}
}
