package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// idle are the objects of the problems that tell of something without effect.
func idle(c *Compiler) []string {
	_, problems := c.Compile(1)
	var out []string
	for _, p := range problems {
		if strings.HasPrefix(p.Text, model.NoEffectPrefix) {
			out = append(out, p.Object)
		}
	}
	return out
}

// What has no effect is a problem of the hosts concerned, from when it concerns
// them until it no longer does.
func TestIneffectiveObjectsAreProblems(t *testing.T) {
	c := New("h1")
	expect := func(when string, want ...string) {
		t.Helper()
		if got := idle(c); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	g := model.DefaultGlobal()
	c.SetGlobal(g)
	n := model.Network{
		Key: model.NetworkKey{Tenant: "t", Name: "n"}, Type: model.NetworkInfra, Encap: model.EncapVXLAN, ID: 1, Tag: 1,
		Subnet: netip.MustParsePrefix("10.1.1.0/24"), CfgdTag: "x",
	}
	c.SetNetwork(n)
	group := model.Group{Key: model.GroupKey{Tenant: "t", Name: "g"}, Network: "n", NetProfile: "np", ExtContracts: []string{"ec"}, CfgdTag: "x"}
	c.SetGroup(group)
	expect("no container here")

	e := model.Endpoint{Key: model.EndpointKey{Network: n.Key, ID: "e"}, Group: "g", Identity: 256, Host: "h2", IPv4: netip.MustParseAddr("10.1.1.1"), MAC: model.MAC{2, 1}}
	c.SetEndpoint(e)
	expect("a container on another host")
	e.Host = "h1"
	c.SetEndpoint(e)
	expect("a container here")
	g.Infra = model.InfraACIOpflex
	c.SetGlobal(g)
	s := model.Service{Key: model.ServiceKey{Tenant: "t", Name: "s"}, Network: model.NetworkKey{Tenant: "t", Name: "n"}, Ports: []model.ServicePort{{}}}
	c.SetService(s)
	all := []string{"globals global networkInfraType aci-opflex"} // of the service the data plane tells
	expect("everything", all...)

	g.Infra = model.InfraDefault
	c.SetGlobal(g)
	group.NetProfile = ""
	c.SetGroup(group)
	c.DeleteService(s.Key)
	expect("settings taken back")
	c.DeleteEndpoint(e.Key)
	expect("the container is gone")
	c.SetEndpoint(e)
	c.DeleteGroup(group.Key)
	c.DeleteNetwork(n.Key)
	expect("the objects are gone")
}
