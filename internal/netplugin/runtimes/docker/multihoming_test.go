package docker

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

func (c *cluster) RouteReplies(k attach.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = append(c.own, "+"+k.Container)
	if c.lost {
		return errors.New("nobody holds it")
	}
	return nil
}

func (c *cluster) RemoveReplyRoutes(k attach.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = append(c.own, "-"+k.Container)
	return nil
}

// TestSeveralInterfacesGetTheirOwnEgress: interfaces of containers with several get their own egress, once, and
// again when their container has got or lost one; those of containers with one are left
// alone; a failure is tried again; who leaves is forgotten.
func TestSeveralInterfacesGetTheirOwnEgress(t *testing.T) {
	b := newBed(t)
	ours := map[attach.Key]bool{}
	for _, id := range []string{"a", "b", "x"} {
		ours[endpointAttachment(id)] = true
	}
	one := container{id: "c2", endpoints: []string{"x"}}
	looks := func(what string, want []string, list ...container) {
		t.Helper()
		b.c.own = nil
		b.p.routeMultihomed(t.Context(), append(list, one), ours)
		if diff := cmp.Diff(want, b.c.own); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	of := func(ids ...string) container { return container{id: "c1", endpoints: ids} }
	looks("one network", nil, of("a"))
	b.c.lost = true
	looks("a second one, without its namespace", []string{"+a", "+b"}, of("b", "a"))
	b.c.lost = false
	looks("again", []string{"+a", "+b"}, of("a", "b"))
	looks("and again", nil, of("b", "a"))
	looks("a third one, of Docker's own", []string{"+a", "+b"}, of("a", "b", "bridge"))
	b.c.own = nil
	b.is("NetworkDriver.Leave", `{"NetworkID":"n1","EndpointID":"b"}`, `{}`)
	b.is("NetworkDriver.Leave", `{"NetworkID":"n1","EndpointID":"x"}`, `{}`)
	if diff := cmp.Diff([]string{"-b"}, b.c.own); diff != "" {
		t.Errorf("who leaves (-want +got):\n%s", diff)
	}
	looks("one network again", []string{"+a"}, of("a"))
	looks("the container ends", nil)
	looks("and starts", nil, of("a"))
}

// TestJoinSecondWithoutGateway: of the networks of a container one has the route to the
// router: the engine fails to make it twice.
func TestJoinSecondWithoutGateway(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"tenant":"blue","network":"lone"}},"IPv4Data":[{"Pool":"10.1.2.0/24"}]}`, `{}`)
	joins := func(endpoint, sandbox string, routed bool) {
		t.Helper()
		want := `{"InterfaceName":{"SrcName":"cwx","DstPrefix":"eth"},"DisableGatewayService":true}`
		if routed {
			want = `{"InterfaceName":{"SrcName":"cwx","DstPrefix":"eth"},"Gateway":"169.254.1.1","GatewayIPv6":"fe80::1:ff:fe00:1","StaticRoutes":[{"Destination":"169.254.1.1/32","RouteType":1},{"Destination":"fe80::1:ff:fe00:1/128","RouteType":1}],"DisableGatewayService":true}`
		}
		b.is("NetworkDriver.Join", `{"NetworkID":"n9","EndpointID":"`+endpoint+`","SandboxKey":"`+sandbox+`"}`, want)
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n9","EndpointID":"e`+id+`","Interface":{"Address":"10.1.2.`+id+`/24","MacAddress":"02:00:00:00:00:0`+id+`"}}`, `{}`)
	}
	joins("e1", "/x", true)
	joins("e2", "/x", false)
	joins("e3", "/y", true)
	joins("e1", "/x", true) // asked again
	b.is("NetworkDriver.Leave", `{"NetworkID":"n9","EndpointID":"e1"}`, `{}`)
	joins("e4", "/x", true)
	b.is("NetworkDriver.DeleteEndpoint", `{"NetworkID":"n9","EndpointID":"e4"}`, `{}`)
	joins("e2", "/x", true)
}

// TestDefaultRouteSurvivesARestart: of several networks without a gateway that a container had when
// netplugin began, the one that leaves may not be the one that has the route to the router:
// none is made while one that may have it is there.
func TestDefaultRouteSurvivesARestart(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"tenant":"blue","network":"lone"}},"IPv4Data":[{"Pool":"10.1.2.0/24"}]}`, `{}`)
	for _, id := range []string{"1", "2", "3", "4"} {
		b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n9","EndpointID":"e`+id+`","Interface":{"Address":"10.1.2.`+id+`/24","MacAddress":"02:00:00:00:00:0`+id+`"}}`, `{}`)
	}
	b.stop()
	p, err := New(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.engine = &engine{http: &http.Client{Transport: fixedEngine(`{"NetworkSettings":{"SandboxKey":"/x"}}`)}}
	ours := map[attach.Key]bool{endpointAttachment("e1"): true, endpointAttachment("e2"): true}
	for range 2 {
		p.routeMultihomed(t.Context(), []container{{id: "c1", endpoints: []string{"e1", "e2"}}}, ours)
	}
	joins := func(endpoint string, routed bool) {
		t.Helper()
		r := joinRequest{endpointRequest: endpointRequest{NetworkID: "n9", EndpointID: endpoint}, SandboxKey: "/x"}
		out, err := p.join(t.Context(), r)
		if err != nil || len(out.StaticRoutes) != map[bool]int{true: 2}[routed] || (out.Gateway != "") != routed {
			t.Errorf("%s: %+v, %v; want routes: %v", endpoint, out, err, routed)
		}
	}
	leaves := func(endpoint string) {
		t.Helper()
		if _, err := p.leave(t.Context(), endpointRequest{NetworkID: "n9", EndpointID: endpoint}); err != nil {
			t.Error(err)
		}
	}
	leaves("e1")
	joins("e3", false)
	leaves("e2")
	joins("e4", true)
	joins("e1", false)
}
