package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// bed is a plugin that serves on its socket.
type bed struct {
	t    *testing.T
	c    *cluster
	cfg  Config
	p    *Plugin
	http *http.Client
	stop func()
}

func newBed(t *testing.T, change ...func(*Config)) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "d-lib-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bed{t: t, c: newCluster()}
	b.cfg = Config{
		Name: "netplugin", SocketDir: filepath.Join(dir, "plugins"), StateDir: dir,
		Backend: b.c.backend(), Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&b.cfg)
	}
	path := filepath.Join(b.cfg.SocketDir, "netplugin.sock")
	b.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bed) start() {
	b.t.Helper()
	p, err := New(b.t.Context(), b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.p = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

func (b *bed) post(call, body string) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://x/"+call, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(bytes.TrimSpace(data))
}

// is posts a call and compares the answer's JSON.
func (b *bed) is(call, body, want string) {
	b.t.Helper()
	status, got := b.post(call, body)
	if status != http.StatusOK {
		b.t.Errorf("%s %s: status %d", call, body, status)
	}
	var w, g any
	if err := errors.Join(json.Unmarshal([]byte(want), &w), json.Unmarshal([]byte(got), &g)); err != nil {
		b.t.Fatal(err, got)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		b.t.Errorf("%s %s (-want +got):\n%s", call, body, diff)
	}
}

// fails posts a call whose answer must be one error that has the part.
func (b *bed) fails(call, body string, wantStatus int, part string) {
	b.t.Helper()
	status, got := b.post(call, body)
	var e errorResponse
	if err := json.Unmarshal([]byte(got), &e); err != nil || e.Err == "" || e.Err != e.Error || !strings.Contains(e.Err, part) || status != wantStatus {
		b.t.Errorf("%s %s: status %d, answer %q, want %d and an error with %q", call, body, status, got, wantStatus, part)
	}
}

const (
	netOne = `{"NetworkID":"n1","Options":{"com.docker.network.generic":{"tenant":"default","network":"net1"}},"IPv4Data":[{"Pool":"10.1.1.0/24","Gateway":"10.1.1.254/24"}]}`
	pool1  = "default/net1//10.1.1.0/24"
)

// TestContainersLifeThroughAllCalls walks a container's life through all calls.
func TestContainersLifeThroughAllCalls(t *testing.T) {
	b := newBed(t)
	b.is("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
	b.is("NetworkDriver.GetCapabilities", "", `{"Scope":"local","ConnectivityScope":"global"}`)
	b.is("IpamDriver.GetCapabilities", "{}", `{"RequiresMACAddress":false,"RequiresRequestReplay":false}`)
	b.is("IpamDriver.GetDefaultAddressSpaces", "", `{"LocalDefaultAddressSpace":"contiv-local","GlobalDefaultAddressSpace":"contiv-global"}`)
	for range 2 { // idempotent
		b.is("IpamDriver.RequestPool", `{"Options":{"network":"net1"}}`,
			`{"PoolID":"default/net1//10.1.1.0/24","Pool":"10.1.1.0/24","Data":{"com.docker.network.gateway":"10.1.1.254/24"}}`)
	}
	b.is("IpamDriver.RequestPool", `{"Options":{"group":"web"},"V6":true}`, `{"PoolID":"default/net1/web/fd00:1::/64","Pool":"fd00:1::/64","Data":{}}`)
	b.is("IpamDriver.RequestAddress", `{"PoolID":"`+pool1+`","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, `{"Address":"10.1.1.254/24","Data":{}}`)
	b.is("IpamDriver.RequestAddress", `{"PoolID":"blue/lone//10.1.2.0/24","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, `{"Address":"10.1.2.0/24","Data":{}}`)
	if len(b.c.reserved) != 0 {
		t.Errorf("gateway requests allocate: %v", b.c.reserved)
	}
	b.is("NetworkDriver.CreateNetwork", netOne, `{}`)
	b.is("IpamDriver.RequestAddress", `{"PoolID":"`+pool1+`"}`, `{"Address":"10.1.1.1/24","Data":{}}`)
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1","Interface":{"Address":"10.1.1.1/24"}}`,
		`{"Interface":{"MacAddress":"02:02:0a:01:01:01"}}`)
	b.is("NetworkDriver.EndpointOperInfo", `{"NetworkID":"n1","EndpointID":"e1"}`,
		`{"Value":{"endpoint":"ep","interface":"cvx","mac":"02:02:0a:01:01:01","mtu":"1450"}}`)
	b.is("NetworkDriver.Join", `{"NetworkID":"n1","EndpointID":"e1","SandboxKey":"/x"}`,
		`{"InterfaceName":{"SrcName":"cwx","DstPrefix":"eth"},"Gateway":"10.1.1.254","DisableGatewayService":true}`)
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e2","Interface":{"Address":"10.1.1.3/24","MacAddress":"02:00:00:00:00:07"}}`, `{}`)
	b.is("NetworkDriver.DeleteEndpoint", `{"NetworkID":"n1","EndpointID":"e2"}`, `{}`)
	for _, call := range []string{"ProgramExternalConnectivity", "RevokeExternalConnectivity", "Leave", "DeleteEndpoint", "DeleteEndpoint"} {
		b.is("NetworkDriver."+call, `{"NetworkID":"n1","EndpointID":"e1"}`, `{}`)
	}
	b.c.reserved[netip.MustParseAddr("10.1.1.1")] = true // somebody else's by now
	b.is("IpamDriver.ReleaseAddress", `{"PoolID":"`+pool1+`","Address":"10.1.1.1"}`, `{}`)
	if len(b.c.reserved) != 1 {
		t.Error("the release of an endpoint's address took another's reservation")
	}
	b.is("IpamDriver.RequestAddress", `{"PoolID":"`+pool1+`","Address":"10.1.1.9"}`, `{"Address":"10.1.1.9/24","Data":{}}`)
	b.is("IpamDriver.ReleaseAddress", `{"PoolID":"`+pool1+`","Address":"10.1.1.9"}`, `{}`)
	if b.c.reserved[netip.MustParseAddr("10.1.1.9")] {
		t.Error("a reservation outlives its release")
	}
	b.is("IpamDriver.ReleasePool", `{"PoolID":"`+pool1+`"}`, `{}`)
	b.is("NetworkDriver.AllocateNetwork", `{"NetworkID":"n2","Options":{"network":"net1"}}`, `{"Options":{"network":"net1"}}`)
	for _, call := range []string{"FreeNetwork", "DeleteNetwork", "DeleteNetwork", "DiscoverNew", "DiscoverDelete"} {
		b.is("NetworkDriver."+call, `{"NetworkID":"n1"}`, `{}`)
	}
	if len(b.c.nets) != 2 || len(b.c.attached) != 0 {
		t.Errorf("%d networks, %d attachments", len(b.c.nets), len(b.c.attached))
	}
}

// TestPoolThatRoutesCover: an engine asks for another pool when a route of this host, such
// as a service's, covers the offered one. The error then says to name the subnet. An engine
// that takes the pool gets no such error, nor one that named it.
func TestPoolThatRoutesCover(t *testing.T) {
	routes := []string{"route 10.1.1.7/32 on contivh0"}
	b := newBed(t, func(c *Config) {
		c.Routes = func(netip.Prefix) ([]string, error) { return routes, nil }
	})
	const (
		ask     = `{"Options":{"network":"net1"}}`
		offered = `{"PoolID":"default/net1//10.1.1.0/24","Pool":"10.1.1.0/24","Data":{"com.docker.network.gateway":"10.1.1.254/24"}}`
	)
	for range 2 { // each time that a user tries
		b.is("IpamDriver.RequestPool", ask, offered)
		if _, got := b.post("IpamDriver.RequestPool", ask); !strings.Contains(got, routes[0]) || !strings.Contains(got, "--subnet 10.1.1.0/24") {
			t.Errorf("asked again: %s", got)
		}
	}
	for range 3 {
		b.is("IpamDriver.RequestPool", ask, offered)
		b.is("IpamDriver.RequestAddress", `{"PoolID":"`+pool1+`","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, `{"Address":"10.1.1.254/24","Data":{}}`)
	}
	for range 2 {
		b.is("IpamDriver.RequestPool", `{"Options":{"network":"net1"},"Pool":"10.1.1.0/24"}`, offered)
	}
	routes = nil
	for range 3 {
		b.is("IpamDriver.RequestPool", ask, offered)
	}
}

// TestBadCallsLeaveNothing: a clear error for each, nothing left, the plugin alive.
func TestBadCallsLeaveNothing(t *testing.T) {
	b := newBed(t)
	b.is("NetworkDriver.CreateNetwork", netOne, `{}`)
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1","Interface":{"Address":"10.1.1.1/24"}}`, `{"Interface":{"MacAddress":"02:02:0a:01:01:01"}}`)
	tests := []struct {
		call, body string
		status     int
		want       string
	}{
		{"NetworkDriver.Bogus", "{}", 404, "NetworkDriver.Bogus"},
		{"", "", 404, "not known"},
		{"NetworkDriver.CreateNetwork", "{", 400, "decode"},
		{"IpamDriver.RequestAddress", `[]`, 400, "decode"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9"}`, 200, "option network"},
		{"NetworkDriver.AllocateNetwork", `{"NetworkID":"n9"}`, 200, "option network"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"a b"}}}`, 200, "a b"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"none"}}}`, 200, "does not exist"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"group":"none"}}}`, 200, "does not exist"},
		{"NetworkDriver.CreateNetwork", strings.Replace(netOne, "10.1.1.0/24", "10.7.1.0/24", 1), 200, "10.1.1.0/24"},
		{"NetworkDriver.CreateNetwork", strings.Replace(netOne, `"network":"net1"`, `"network":"lone","tenant":"blue"`, 1), 200, "already"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n9","EndpointID":"e9"}`, 200, "n9"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e9","Options":{"com.docker.network.portmap":[],"group":"db"}}`, 200, "driver-opt group"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1"}`, 200, "exists already"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e2","Interface":{"MacAddress":"02:00"}}`, 200, "macAddress"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e2","Interface":{"Address":"x"}}`, 200, `"x"`},
		{"NetworkDriver.Join", `{"NetworkID":"n1","EndpointID":"e9"}`, 200, "e9"},
		{"NetworkDriver.EndpointOperInfo", `{"NetworkID":"n1","EndpointID":"e9"}`, 200, "e9"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.internal":true,"com.docker.network.generic":{"network":"lone","tenant":"blue"}}}`, 200, "--internal"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.internal":true,"com.docker.network.generic":{}},"IPv4Data":[{"Pool":"10.66.0.0/24"}]}`, 200, "--internal"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"lone","tenant":"blue","com.docker.network.driver.mtu":"1400"}}}`, 200, "-o com.docker.network.driver.mtu"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"lone","tenant":"blue","vlan":"9"}}}`, 200, "-o vlan"},
		{"IpamDriver.RequestPool", `{"Options":{"network":"net1","range":"x"}}`, 200, "--ipam-opt range"},
		{"IpamDriver.RequestAddress", `{"PoolID":"///10.9.2.0/24","Address":"10.9.2.5"}`, 200, "--aux-address"},
		{"IpamDriver.RequestPool", `{}`, 200, "IPAM option network"},
		{"IpamDriver.RequestPool", `{"Options":{"network":"none"}}`, 200, "does not exist"},
		{"IpamDriver.RequestPool", `{"Options":{"network":"net1"},"Pool":"10.9.0.0/16"}`, 200, "10.1.1.0/24"},
		{"IpamDriver.RequestPool", `{"Options":{"network":"lone","tenant":"blue"},"V6":true}`, 200, "no subnet"},
		{"IpamDriver.RequestAddress", `{"PoolID":"nonsense"}`, 200, "nonsense"},
		{"IpamDriver.RequestAddress", `{"PoolID":"` + pool1 + `","Address":"10.2.2.2"}`, 200, "inside"},
		{"IpamDriver.RequestAddress", `{"PoolID":"` + pool1 + `","Address":"x"}`, 200, `"x"`},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"a/b","Address":"10.2.2.2"}`, 200, "a/b"},
		{"IpamDriver.ReleasePool", `{"PoolID":""}`, 200, "pool"},
	}
	for _, tt := range tests {
		b.fails(tt.call, tt.body, tt.status, tt.want)
	}
	if len(b.c.attached) != 1 || len(b.c.reserved) != 0 || len(b.c.nets) != 2 {
		t.Errorf("left: %v, %v, %d networks", b.c.attached, b.c.reserved, len(b.c.nets))
	}
	b.is("Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`)
}

// TestRestartKnowsItsNetworks: network ids are known again; a stale socket is replaced; a second
// plugin of the name, or a file in the socket's place, is refused.
func TestRestartKnowsItsNetworks(t *testing.T) {
	b := newBed(t, func(c *Config) { c.Global = true })
	b.is("NetworkDriver.GetCapabilities", "", `{"Scope":"global","ConnectivityScope":"global"}`)
	b.is("NetworkDriver.CreateNetwork", netOne, `{}`)
	if _, err := New(t.Context(), b.cfg); !errors.Is(err, model.ErrConflict) || !strings.Contains(fmt.Sprint(err), "--plugin-name") {
		t.Errorf("second plugin: %v", err)
	}
	b.stop()
	path := filepath.Join(b.cfg.SocketDir, "netplugin.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.is("NetworkDriver.CreateEndpoint", `{"NetworkID":"n1","EndpointID":"e1"}`, `{"Interface":{"Address":"10.1.1.1/24","MacAddress":"02:02:0a:01:01:01"}}`)
	b.stop()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), b.cfg); !errors.Is(err, model.ErrConflict) {
		t.Errorf("file in the socket's place: %v", err)
	}
	if err := os.WriteFile(filepath.Join(b.cfg.StateDir, "docker", "networks.json"), []byte(`{"version":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), b.cfg); err == nil || !strings.Contains(err.Error(), "networks.json") {
		t.Errorf("map of another version: %v", err)
	}
}

// TestNetworksCreatedByDockerGoWithIt: a network that Docker created goes with Docker's, one
// that was there stays.
func TestNetworksCreatedByDockerGoWithIt(t *testing.T) {
	b := newBed(t)
	b.is("IpamDriver.RequestPool", `{"Options":{"network":"mine"},"Pool":"10.9.0.0/24"}`, `{"PoolID":"default/mine//10.9.0.0/24","Pool":"10.9.0.0/24","Data":{}}`)
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n5","Options":{"com.docker.network.generic":{"network":"mine","encap":"vlan","pkt-tag":"7"}},"IPv4Data":[{"Pool":"10.9.0.0/24","Gateway":"10.9.0.1/24"}]}`, `{}`)
	want := model.Network{
		Key: model.NetworkKey{Tenant: "default", Name: "mine"}, Encap: model.EncapVLAN, ReqTag: 7,
		Subnet: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.9.0.1"),
	}
	if got := b.c.nets[want.Key]; got != want {
		t.Errorf("created %+v, want %+v", got, want)
	}
	b.is("NetworkDriver.DeleteNetwork", `{"NetworkID":"n5"}`, `{}`)
	if _, ok := b.c.nets[want.Key]; ok {
		t.Error("it outlives Docker's network")
	}
}

// FuzzParsePool feeds anything to the reader of pool ids; what it takes it
// writes back.
func FuzzParsePool(f *testing.F) {
	f.Add(pool1)
	f.Add("blue/n/g/fd00::/64")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePool(s)
		if err != nil {
			return
		}
		again, err := parsePool(p.String())
		if err != nil || again != p {
			t.Errorf("%q is %v, which is %v, %v", s, p, again, err)
		}
	})
}

// until waits for a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("still not: " + what)
		}
	}
}
