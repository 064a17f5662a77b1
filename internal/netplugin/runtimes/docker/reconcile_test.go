package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// docker is an engine reduced to the calls that a Plugin makes.
type docker struct {
	mu       sync.Mutex
	nets     map[string]engineNetwork
	made     int
	busy     map[string]bool // ids that cannot go
	endpoint string          // of the one running container
	scope    string          // of networks that are made
	manager  bool            // of a swarm
}

func (d *docker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, engineVersion)
	id, isNetwork := strings.CutPrefix(path, "/networks/")
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
	}
	switch {
	case r.Method == http.MethodGet && path == "/networks":
		out := []engineNetwork{{ID: "bridge", Name: "bridge", Driver: "bridge"}}
		for _, n := range d.nets {
			out = append(out, n)
		}
		_ = json.NewEncoder(w).Encode(out)
	case r.Method == http.MethodGet && path == "/info":
		_, _ = fmt.Fprintf(w, `{"Swarm":{"LocalNodeState":"active","ControlAvailable":%v}}`, d.manager)
	case r.Method == http.MethodGet && path == "/containers/json":
		_, _ = fmt.Fprintf(w, `[{"NetworkSettings":{"Networks":{"net1":{"EndpointID":%q}}}}]`, d.endpoint)
	case r.Method == http.MethodPost && id == "create":
		var c createRequest
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			fail(400, err.Error())
			return
		}
		if d.scope == "swarm" && strings.Contains(c.Name, "/") {
			fail(400, "name must be valid as a DNS name component")
			return
		}
		for _, n := range d.nets {
			if n.Name == c.Name {
				fail(409, "network with name "+c.Name+" already exists")
				return
			}
		}
		d.made++
		n := engineNetwork{ID: fmt.Sprintf("id%d", d.made), Name: c.Name, Driver: c.Driver, Scope: d.scope, Labels: c.Labels, Options: c.Options, IPAM: c.IPAM}
		d.nets[n.ID] = n
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"Id": n.ID})
	case r.Method == http.MethodDelete && isNetwork && d.busy[id]:
		fail(403, "network has active endpoints")
	case r.Method == http.MethodDelete && isNetwork:
		delete(d.nets, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(404, "page not found")
	}
}

func (d *docker) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, n := range d.nets {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// newEngineBed is a plugin with an engine that answers.
func newEngineBed(t *testing.T) (*Plugin, *cluster, *docker) {
	t.Helper()
	d := &docker{nets: map[string]engineNetwork{}, busy: map[string]bool{}}
	var sock string
	b := newBed(t, func(c *Config) { sock = filepath.Join(c.StateDir, "docker.sock") })
	b.stop() // the comparisons are made by the test
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: d, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	b.cfg.Endpoint = "unix://" + sock
	p, err := New(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		p.engine.close()
		_ = srv.Close()
		<-done
	})
	return p, b.c, d
}

// compare makes one comparison and returns its problems.
func compare(t *testing.T, p *Plugin) map[string]string {
	t.Helper()
	problems := map[string]string{}
	if _, err := p.compareNetworks(t.Context(), problems); err != nil {
		t.Fatal(err)
	}
	return problems
}

// TestNetworksFollowTheCluster: networks appear, come back, change and go with the
// cluster's, and foreign ones are left alone.
func TestNetworksFollowTheCluster(t *testing.T) {
	p, c, d := newEngineBed(t)
	d.nets["foreign"] = engineNetwork{ID: "foreign", Name: "foreign", Driver: "netplugin"}
	check := func(want ...string) {
		t.Helper()
		if problems := compare(t, p); len(problems) > 0 {
			t.Errorf("problems: %v", problems)
		}
		if diff := cmp.Diff(want, d.names()); diff != "" {
			t.Errorf("networks (-want +got):\n%s", diff)
		}
	}
	check("foreign", "lone/blue", "net1", "web")
	made := d.made
	check("foreign", "lone/blue", "net1", "web")
	if d.made != made {
		t.Error("a second comparison creates networks")
	}
	web := d.nets[idOf(d, "web")]
	want := engineNetwork{
		ID: web.ID, Name: "web", Driver: "netplugin",
		Labels:  map[string]string{"io.contiv.plugin": "netplugin", "io.contiv.tenant": "default", "io.contiv.network": "net1", "io.contiv.group": "web"},
		Options: map[string]string{"tenant": "default", "network": "net1", "group": "web"},
		IPAM: engineIPAM{
			Driver: "netplugin", Options: map[string]string{"tenant": "default", "network": "net1", "group": "web"},
			Config: []engineSubnet{{Subnet: "10.1.1.0/24", Gateway: "10.1.1.254"}, {Subnet: "fd00:1::/64"}},
		},
	}
	if diff := cmp.Diff(want, web); diff != "" {
		t.Errorf("group's network (-want +got):\n%s", diff)
	}
	delete(d.nets, web.ID) // a user's docker network rm
	if err := p.networks.remove(web.ID); err != nil {
		t.Fatal(err)
	}
	check("foreign", "lone/blue", "net1", "web")

	// A network that a user is just creating is not made a second time, unless the
	// user's comes to nothing.
	mine := Ref{Network: model.NetworkKey{Tenant: "default", Name: "mine"}}
	c.nets[mine.Network] = model.Network{Key: mine.Network, Subnet: netip.MustParsePrefix("10.1.3.0/24")}
	if err := p.networks.put("user", binding{Ref: mine, Created: true}); err != nil {
		t.Fatal(err)
	}
	check("foreign", "lone/blue", "net1", "web")
	p.stale["user"] = p.stale["user"].Add(-creationTimeout)
	check("foreign", "lone/blue", "mine", "net1", "web")
	delete(c.nets, mine.Network)
	check("foreign", "lone/blue", "net1", "web")

	lone := model.NetworkKey{Tenant: "blue", Name: "lone"}
	n := c.nets[lone]
	delete(c.nets, lone)
	check("foreign", "net1", "web")
	c.nets[lone] = n
	check("foreign", "lone/blue", "net1", "web")

	// Networks that cannot be removed or made are reported.
	d.busy[idOf(d, "web")] = true
	delete(c.groups, model.GroupKey{Tenant: "default", Name: "web"})
	c.groups[model.GroupKey{Tenant: "default", Name: "foreign"}] = model.Group{Key: model.GroupKey{Tenant: "default", Name: "foreign"}, Network: "net1"}
	problems := compare(t, p)
	if !strings.Contains(problems["web"], "active endpoints") || !strings.Contains(problems["foreign"], "already exists") || len(problems) != 2 {
		t.Errorf("problems: %v", problems)
	}
}

// TestRemovedNetworkIsDeletedOnceItCanBe: Docker forgets a network although the cluster has
// not deleted it; it does not come back into Docker as one of the cluster's, and goes.
func TestRemovedNetworkIsDeletedOnceItCanBe(t *testing.T) {
	p, c, d := newEngineBed(t)
	mine := Ref{Network: model.NetworkKey{Tenant: "default", Name: "mine"}}
	n := model.Network{Key: mine.Network, Subnet: netip.MustParsePrefix("10.1.3.0/24")}
	remove := func(id string) error {
		c.nets[mine.Network] = n
		if err := p.networks.put(id, binding{Ref: mine, Created: true, Want: n}); err != nil {
			t.Fatal(err)
		}
		c.stays = model.Errorf(model.ErrConflict, "it has endpoints")
		_, err := p.deleteNetwork(t.Context(), networkRequest{NetworkID: id})
		return err
	}
	here := func(want bool) {
		t.Helper()
		if _, ok := c.nets[mine.Network]; ok != want {
			t.Errorf("the Contiv network is there: %v, want %v", ok, want)
		}
		if slices.Contains(d.names(), "mine") {
			t.Error("Docker has it again")
		}
	}
	if err := remove("first"); err == nil || !strings.Contains(err.Error(), "it has endpoints") {
		t.Errorf("deleteNetwork() = %v", err)
	}
	if got := compare(t, p)["mine"]; !strings.Contains(got, "it has endpoints") {
		t.Errorf("problem %q", got)
	}
	here(true)
	c.stays = nil
	compare(t, p)
	here(false)

	// A user who has made it again meanwhile keeps it.
	_ = remove("second") // as above
	c.stays = nil
	d.nets["third"] = engineNetwork{ID: "third", Name: "theirs", Driver: "netplugin", IPAM: engineIPAM{Config: []engineSubnet{{Subnet: "10.1.3.0/24"}}}}
	if err := p.networks.put("third", binding{Ref: mine, Created: true, Want: n}); err != nil {
		t.Fatal(err)
	}
	compare(t, p)
	here(true)
}

func idOf(d *docker, name string) string {
	for id, n := range d.nets {
		if n.Name == name {
			return id
		}
	}
	return ""
}

// TestLostNetworkIDsAreLearnedAgain: ids of labelled networks are learnt again from the engine, and ids
// that it has not listed for a while are forgotten.
func TestLostNetworkIDsAreLearnedAgain(t *testing.T) {
	p, _, d := newEngineBed(t)
	compare(t, p)
	compare(t, p)
	id := idOf(d, "web")
	if b, ok := p.networks.get(id); !ok || b.Group != "web" || b.Network.Name != "net1" {
		t.Errorf("the id of web is bound to %v, %v", b, ok)
	}
	if err := p.networks.put("old", binding{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ids := map[string]bool{id: true}
	for _, at := range []time.Duration{0, goneAfter / 2} {
		if err := p.forget(ids, now.Add(at)); err != nil {
			t.Fatal(err)
		}
		if _, ok := p.networks.get("old"); !ok {
			t.Fatalf("forgotten after %v", at)
		}
	}
	if err := p.forget(ids, now.Add(goneAfter)); err != nil {
		t.Fatal(err)
	}
	if got := p.networks.ids(); !slices.Equal(got, []string{id}) {
		t.Errorf("ids %v remain", got)
	}
}

// TestEndpointsWithoutContainerAreDetached: an endpoint that no running container has is detached after a
// while, and no other.
func TestEndpointsWithoutContainerAreDetached(t *testing.T) {
	p, c, d := newEngineBed(t)
	d.endpoint = "alive"
	for _, id := range []string{"alive", "dead"} {
		c.attached[endpointAttachment(id)] = attach.Result{}
	}
	lost := map[attach.Key]time.Time{}
	now := time.Now()
	for _, at := range []time.Duration{0, goneAfter / 2, goneAfter} {
		if n := len(c.attached); n != 2 {
			t.Fatalf("%d attachments before %v", n, at)
		}
		if err := p.collect(t.Context(), lost, now.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.attached[endpointAttachment("alive")]; !ok || len(c.attached) != 1 {
		t.Errorf("attachments: %v", c.attached)
	}
}

// TestMissingEngineIsReported: no engine is no failure, but told; its networks come when it does.
func TestMissingEngineIsReported(t *testing.T) {
	d := &docker{nets: map[string]engineNetwork{}}
	var sock string
	b := newBed(t, func(c *Config) {
		sock = filepath.Join(c.StateDir, "docker.sock")
		c.Endpoint = "unix://" + sock
	})
	b.is("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	until(t, "the host says so", func() bool { return strings.Contains(b.c.says(), "docker.sock") })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: d, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	defer func() { b.stop(); _ = srv.Close(); <-done }()
	until(t, "the networks are there", func() bool { return len(d.names()) == 3 })
	until(t, "the host says nothing more", func() bool { return b.c.says() == "" })
}

// TestNetworkIsMadeOnceItHasAName: a network that a user creates without telling us its name is made
// as soon as the engine lists it; what cannot be made goes from Docker again.
func TestNetworkIsMadeOnceItHasAName(t *testing.T) {
	p, c, d := newEngineBed(t)
	create := func(id, subnet, tenant string) error {
		_, err := p.createNetwork(t.Context(), createNetworkRequest{
			NetworkID: id, IPv4Data: []ipamData{{Pool: subnet, Gateway: netip.MustParsePrefix(subnet).Addr().Next().String() + "/24"}},
			Options: map[string]any{keyGeneric: map[string]any{"tenant": tenant}},
		})
		return err
	}
	list := func(id, name string) { d.nets[id] = engineNetwork{ID: id, Name: name, Driver: "netplugin"} }
	if err := create("u0", "10.1.1.0/25", "default"); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "-o network=net1") {
		t.Errorf("overlapping subnet: %v", err)
	}
	if _, err := p.createNetwork(t.Context(), createNetworkRequest{
		NetworkID: "u9", IPv4Data: []ipamData{{Pool: "10.9.0.0/24"}}, Options: map[string]any{keyGeneric: map[string]any{"encap": "gre"}},
	}); err == nil || !strings.Contains(err.Error(), "gre") {
		t.Errorf("an encapsulation that there is not: %v", err)
	}
	pl, err := p.ipam.requestPool(t.Context(), requestPoolRequest{Pool: "10.6.0.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	if err := create("u1", "10.6.0.0/24", "blue"); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() { // waits for the name
		r, err := p.ipam.requestAddress(t.Context(), requestAddressRequest{PoolID: pl.PoolID, Address: "10.6.0.9"})
		got <- fmt.Sprint(r.Address, err)
	}()
	compare(t, p) // not listed yet
	list("u1", "lab/blue")
	compare(t, p)
	if text := <-got; text != "10.6.0.9/24<nil>" {
		t.Errorf("address: %s", text)
	}
	key := model.NetworkKey{Tenant: "blue", Name: "lab"}
	if n := c.nets[key]; n.Subnet.String() != "10.6.0.0/24" || n.Gateway.String() != "10.6.0.1" {
		t.Errorf("the Contiv network is %+v", n)
	}
	made := d.made
	if compare(t, p); d.made != made {
		t.Error("the network is made a second time")
	}
	if err := create("u2", "10.6.0.0/24", "default"); err != nil {
		t.Fatal(err)
	}
	list("u2", "bad name!")
	c.refuse = model.Errorf(model.ErrConflict, "no")
	if problems := compare(t, p); !strings.Contains(problems["bad name!"], "removed from Docker") {
		t.Errorf("problems: %v", problems)
	}
	c.refuse = nil
	if _, ok := d.nets["u2"]; ok {
		t.Error("a network that cannot be made stays in Docker")
	}
	if err := create("u3", "10.7.0.0/24", "nosuch"); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("unknown tenant: %v", err)
	}
	c.readOnly = model.Errorf(model.ErrInvalid, "--docker-token-file")
	if err := create("u3", "10.7.0.0/24", "default"); !errors.Is(err, c.readOnly) {
		t.Errorf("host without a token: %v", err)
	}
	if _, err := p.deleteNetwork(t.Context(), networkRequest{NetworkID: "u1"}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.nets[key]; ok {
		t.Error("the Contiv network outlives Docker's")
	}
}

// TestNamesOfComposeGetHyphens: names that Contiv does not take are mapped, and made
// unique where another network has the name.
func TestNamesOfComposeGetHyphens(t *testing.T) {
	for name, want := range map[string][]model.NetworkName{
		"lab":                    {"lab", "lab-0123456789ab"},
		"app_front":              {"app-front", "app-front-0123456789ab"},
		"_x..y_":                 {"x-y", "x-y-0123456789ab"},
		"___":                    {"0123456789ab"},
		strings.Repeat("a_", 40): {model.NetworkName(strings.Repeat("a-", 26)[:51] + "-0123456789ab")},
	} {
		got := contivNames(name, "0123456789abcdef")
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		for _, n := range got {
			if _, err := model.ParseNetworkName(string(n)); err != nil {
				t.Error(err)
			}
		}
	}
	p, c, d := newEngineBed(t)
	for id, subnet := range map[string]string{"u1": "10.6.0.0/24", "u2": "10.7.0.0/24"} {
		if _, err := p.createNetwork(t.Context(), createNetworkRequest{NetworkID: id, IPv4Data: []ipamData{{Pool: subnet}}}); err != nil {
			t.Fatal(err)
		}
	}
	d.nets["u1"] = engineNetwork{ID: "u1", Name: "app_front", Driver: "netplugin"}
	compare(t, p)
	d.nets["u2"] = engineNetwork{ID: "u2", Name: "app-front", Driver: "netplugin"}
	if problems := compare(t, p); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	for name, subnet := range map[model.NetworkName]string{"app-front": "10.6.0.0/24", "app-front-u2": "10.7.0.0/24"} {
		if n := c.nets[model.NetworkKey{Tenant: "default", Name: name}]; n.Subnet.String() != subnet {
			t.Errorf("network %s has subnet %v, want %s", name, n.Subnet, subnet)
		}
	}
}

// TestPoolWithoutOptionsIsFoundBySubnet: Compose v2 passes driver_opts to the network and
// no options to its addresses.
func TestPoolWithoutOptionsIsFoundBySubnet(t *testing.T) {
	p, _, _ := newEngineBed(t)
	compare(t, p)
	pl, err := p.ipam.requestPool(t.Context(), requestPoolRequest{Pool: "10.1.1.0/24"})
	if err != nil {
		t.Fatal(err)
	}
	for id, options := range map[string]map[string]any{"a": {"network": "net1"}, "b": {"network": "net1", "group": "web"}} {
		if _, err := p.createNetwork(t.Context(), createNetworkRequest{
			NetworkID: id, IPv4Data: []ipamData{{Pool: "10.1.1.0/24"}},
			Options: map[string]any{keyGeneric: options},
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.ipam.requestAddress(t.Context(), requestAddressRequest{PoolID: pl.PoolID})
	if err != nil || got.Address != "10.1.1.1/24" {
		t.Errorf("address %q, %v", got.Address, err)
	}
}

// TestNetworkOfAnotherSubnet: a network that went and came back with another
// subnet between two comparisons is replaced; the network beside it stays.
func TestNetworkOfAnotherSubnet(t *testing.T) {
	p, c, d := newEngineBed(t)
	compare(t, p)
	key := model.NetworkKey{Tenant: "blue", Name: "lone"}
	for _, change := range []func(*model.Network){
		func(n *model.Network) { n.Subnet = netip.MustParsePrefix("10.77.0.0/24") },
		func(n *model.Network) { n.Subnet6 = netip.MustParsePrefix("fd00:77::/64") },
		func(n *model.Network) { n.Subnet6 = netip.MustParsePrefix("fd00:78::/64") },
	} {
		old, kept := idOf(d, "lone/blue"), idOf(d, "net1")
		n := c.nets[key]
		change(&n)
		c.nets[key] = n
		if problems := compare(t, p); len(problems) > 0 {
			t.Errorf("problems: %v", problems)
		}
		now := idOf(d, "lone/blue")
		var subnets []string
		for _, s := range d.nets[now].IPAM.Config {
			subnets = append(subnets, s.Subnet)
		}
		if now == old || !slices.Contains(subnets, n.Subnet.String()) || n.Subnet6.IsValid() && !slices.Contains(subnets, n.Subnet6.String()) {
			t.Errorf("the network %s was %s, and is %s with %v; want another one with %v and %v", key, old, now, subnets, n.Subnet, n.Subnet6)
		}
		if id := idOf(d, "net1"); id != kept {
			t.Errorf("the network beside it was %s and is %s", kept, id)
		}
	}
}
