package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// hostStream is what a host gets of the relay.
type hostStream struct {
	asks  *io.PipeWriter
	lines *bufio.Scanner
	rows  map[int]map[string]string // by mirror and key
}

func (c *harness) openStream(host model.HostName) *hostStream {
	c.t.Helper()
	asked, asks := io.Pipe()
	out, sent := io.Pipe()
	ctx, cancel := context.WithCancel(testContext(c.t))
	var serving sync.WaitGroup
	serving.Go(func() {
		_ = c.Relay(ctx, Agent(host), asked, func() { _ = asked.Close() }, func(b []byte) error { // the client sees the end
			_, err := sent.Write(b)
			return err
		})
		_ = sent.Close()
	})
	c.t.Cleanup(func() {
		cancel()
		_, _ = asks.Close(), out.Close()
		serving.Wait()
	})
	s := &hostStream{asks: asks, lines: bufio.NewScanner(out), rows: map[int]map[string]string{}}
	s.lines.Buffer(nil, 1<<20)
	return s
}

func (s *hostStream) ask(t *testing.T, id int, prefixes ...string) {
	t.Helper()
	s.askFor(t, api.MirrorRequest{ID: id, Prefixes: prefixes})
}

func (s *hostStream) askFor(t *testing.T, ask api.MirrorRequest) {
	t.Helper()
	b, err := json.Marshal(ask)
	if err == nil {
		_, err = s.asks.Write(append(b, '\n'))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// next reads until a mirror gets something whole, and returns it.
func (s *hostStream) next(t *testing.T, id int) api.MirrorMessage {
	t.Helper()
	for s.lines.Scan() {
		var m api.MirrorMessage
		if err := json.Unmarshal(s.lines.Bytes(), &m); err != nil || m.End != "" {
			t.Fatalf("%s: %v", s.lines.Bytes(), err)
		}
		if m.List && m.Revision != 0 || m.Withheld || m.Resumed {
			s.rows[m.ID] = map[string]string{}
		}
		for _, r := range m.Rows {
			s.rows[m.ID][r.Key] = r.Text
		}
		if m.ID == id {
			return m
		}
	}
	t.Fatal("the stream ended")
	return api.MirrorMessage{}
}

// secretCluster has a row of every kind in tenants red and blue, and outside of tenants.
// Every value of blue, of host h2 and of what no host reads has the word "secret".
func (c *harness) secretCluster() {
	c.t.Helper()
	c.write(func(tx store.Tx) error {
		for _, t := range []model.TenantName{"red", "blue"} {
			word := map[model.TenantName]string{"red": "plain", "blue": "secret"}[t]
			for _, kind := range []string{"appprofiles/x", "assertions/x", "endpoints/n/x", "extcontracts/x", "groups/x", "identities/9", "netprofiles/x", "networks/x", "policies/x", "replacements/x", "rules/x/1", "services/x", "staged/x/1", "trials/x", "volumes/x", "volumeprofiles/x"} {
				tx.Put(tables.TenantPrefix(t)+kind, []byte(`{"v":1,"d":{"word":"`+word+`"}}`), nil)
			}
		}
		for _, key := range []string{"alloc/aci/fabric", "alloc/name/x/x", "alloc/hostAddresses/h1", "global/config/aciGw", "global/other/x"} {
			tx.Put(tables.StatePrefix+key, []byte(`{"v":1,"d":{"word":"secret"}}`), nil)
		}
		tx.Put(store.Root+"access/tokens/x", []byte("secret"), nil)
		tx.Put(store.Root+"join/token/x", []byte("secret"), nil)
		return errors.Join(tables.Bgps.Put(tx, model.Bgp{Host: "h2", Password: "secret"}), tables.Bgps.Put(tx, model.Bgp{Host: "h1", Password: "own"}))
	})
}

func (c *harness) write(fn func(store.Tx) error) {
	c.t.Helper()
	rev, err := c.st.Update(c.t.Context(), fn)
	if err == nil {
		err = c.follow.WaitFor(testContext(c.t), rev)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func endpointOf(t model.TenantName, id model.EndpointID, host model.HostName) model.Endpoint {
	return model.Endpoint{Key: model.EndpointKey{Network: model.NetworkKey{Tenant: t, Name: "x"}, ID: id}, Host: host}
}

// TestStolenHostCertificateReadsNoOtherTenant: who has the certificate of a host with
// endpoints of tenant red asks for everything.
func TestStolenHostCertificateReadsNoOtherTenant(t *testing.T) {
	h := newCluster(t)
	h.secretCluster()
	h.write(func(tx store.Tx) error { return tables.Endpoints.Put(tx, endpointOf("red", "e1", "h1")) })
	s := h.openStream("h1")
	id := 0
	for _, p := range []string{tables.GlobalPrefix, tables.TenantPrefix("red"), tables.TenantPrefix("blue"), tables.TenantPrefix("blue") + "policies/x", tables.TenantPrefix("default"), tables.BgpsScope} {
		id++
		s.ask(t, id, p)
		s.next(t, id)
	}
	for _, rows := range s.rows {
		for key, value := range rows {
			if strings.Contains(value, "secret") {
				t.Errorf("it reads %s: %s", key, value)
			}
		}
	}
	for key := range map[string]bool{tables.TenantPrefix("red") + "policies/x": true, tables.TenantPrefix("red") + "endpoints/n/x": true} {
		if s.rows[2][key] == "" {
			t.Errorf("it does not read %s", key)
		}
	}
	if got := s.rows[1][tables.Bgps.Key(tables.BgpKey{Host: "h1"})]; !strings.Contains(got, "own") {
		t.Errorf("its own password is not in %q", got)
	}
	// And as commits.
	h.secretCluster()
	h.write(func(tx store.Tx) error { return tables.Hosts.Put(tx, model.Host{Name: "last"}) })
	for s.rows[1][tables.Hosts.Key("last")] == "" {
		s.next(t, 1)
	}
	for _, rows := range s.rows {
		for key, value := range rows {
			if strings.Contains(value, "secret") {
				t.Errorf("a commit told it %s: %s", key, value)
			}
		}
	}
}

// TestStolenHostCertificateResumesNoOtherTenant: where a host goes on with what it missed, it
// gets no rows of others, whatever grade it says that it had.
func TestStolenHostCertificateResumesNoOtherTenant(t *testing.T) {
	h := newCluster(t)
	h.write(func(tx store.Tx) error {
		return errors.Join(tables.Endpoints.Put(tx, endpointOf("red", "e1", "h1")), tables.Bgps.Put(tx, model.Bgp{Host: "h1", Password: "former"}))
	})
	identity, err := h.st.Get(t.Context(), store.StoreIdentityKey)
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := h.follow.Rows()
	h.secretCluster()
	prefixes := []string{tables.GlobalPrefix, tables.BgpsScope, tables.TenantPrefix("red"), tables.TenantPrefix("blue"), tables.TenantPrefix("default")}
	resumed := map[string]int{}
	for _, host := range []model.HostName{"h1", "h3"} {
		for _, grade := range []string{"", "everything", "registered", "global", "global of h1", "global of h2", "tenant", "peer", "networks"} {
			s := h.openStream(host)
			for n, p := range prefixes {
				s.askFor(t, api.MirrorRequest{ID: n + 1, Prefixes: []string{p}, At: int64(at), Store: store.IncarnationOf(identity).Mark(), Grade: grade})
				m := s.next(t, n+1)
				for m.List && m.Revision == 0 {
					m = s.next(t, n+1)
				}
				if m.Resumed {
					resumed[string(host)+" "+grade]++
				}
			}
			for _, rows := range s.rows {
				for key, value := range rows {
					if strings.Contains(value, "secret") || host == "h3" && strings.Contains(value, "own") {
						t.Errorf("%s, which says that it had grade %q, reads %s: %s", host, grade, key, value)
					}
				}
			}
		}
	}
	want := map[string]int{"h1 global of h1": 2, "h1 tenant": 1, "h1 peer": 1, "h3 global": 2, "h3 peer": 1}
	if diff := cmp.Diff(want, resumed); diff != "" {
		t.Error("mirrors that went on:", diff)
	}
}

// TestHostMayNotMirrorTenantsTogether: prefixes that cover more than one tenant, and what lies
// outside of the state, end the stream.
func TestHostMayNotMirrorTenantsTogether(t *testing.T) {
	h := newCluster(t)
	for i, prefixes := range [][]string{
		{tables.StatePrefix},
		{tables.StatePrefix + "tenant/"},
		{tables.StatePrefix + "tenant/re"},
		{tables.AllocPrefix},
		{store.Root},
		{""},
		{store.Root + "access/"},
		{store.Root + "join/"},
		{store.Root + "lock/"},
		{tables.OperPrefix + "host/"},
		{tables.TenantPrefix("red"), tables.TenantPrefix("blue")},
		{tables.GlobalPrefix, tables.TenantPrefix("red")},
	} {
		s := h.openStream(model.HostName("h" + strconv.Itoa(i)))
		s.ask(t, 1, prefixes...)
		var m api.MirrorMessage
		for m.End == "" && s.lines.Scan() {
			if err := json.Unmarshal(s.lines.Bytes(), &m); err != nil || m.ID != 0 {
				t.Fatalf("%q: %s", prefixes, s.lines.Bytes())
			}
		}
		if !strings.Contains(m.End, "mirror:") {
			t.Errorf("%q: ended by %q", prefixes, m.End)
		}
	}
}

// TestHostReadsOnlyTenantsOfItsEndpoints: how much of each tenant a host reads, by where its
// endpoints are.
func TestHostReadsOnlyTenantsOfItsEndpoints(t *testing.T) {
	h := newCluster(t)
	shared := func(t model.TenantName) []model.NetworkKey { return []model.NetworkKey{{Tenant: t, Name: "x"}} }
	h.write(func(tx store.Tx) error {
		return errors.Join(
			tables.Tenants.Put(tx, model.Tenant{Name: "red", Shared: shared("infra")}),
			tables.Tenants.Put(tx, model.Tenant{Name: "infra", Clients: []model.TenantName{"red"}}),
			tables.Tenants.Put(tx, model.Tenant{Name: "blue"}),
			tables.Endpoints.Put(tx, endpointOf("red", "e1", "client")),
			tables.Endpoints.Put(tx, endpointOf("infra", "e2", "server")),
			tables.Bgps.Put(tx, model.Bgp{Host: "speaker"}), tables.Bgps.Put(tx, model.Bgp{Host: "client"}),
		)
	})
	got := map[model.HostName]map[model.TenantName]tables.HostRows{}
	for _, host := range []model.HostName{"client", "server", "speaker", "idle"} {
		got[host] = map[model.TenantName]tables.HostRows{}
		for _, tenant := range []model.TenantName{"red", "infra", "blue", model.DefaultTenant, "unknown"} {
			got[host][tenant] = h.view.HostRows.Of(host, tenant)
		}
	}
	want := map[model.HostName]map[model.TenantName]tables.HostRows{
		"client":  {"red": tables.AllRows, "infra": tables.PeerRows, "blue": tables.NetworkRows, model.DefaultTenant: tables.PeerRows, "unknown": tables.NoRows},
		"server":  {"red": tables.PeerRows, "infra": tables.AllRows, "blue": tables.NoRows, model.DefaultTenant: tables.PeerRows, "unknown": tables.NoRows},
		"speaker": {"red": tables.NetworkRows, "infra": tables.NetworkRows, "blue": tables.NetworkRows, model.DefaultTenant: tables.PeerRows, "unknown": tables.NoRows},
		"idle":    {"red": tables.NoRows, "infra": tables.NoRows, "blue": tables.NoRows, model.DefaultTenant: tables.PeerRows, "unknown": tables.NoRows},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestServiceOfKubernetesBringsItsTenant: every host leads to the services of Kubernetes, and so
// reads where a tenant's networks and endpoints are while one is there; but no policies.
func TestServiceOfKubernetesBringsItsTenant(t *testing.T) {
	h := newCluster(t)
	h.secretCluster()
	h.write(func(tx store.Tx) error { return tables.Tenants.Put(tx, model.Tenant{Name: "red"}) })
	s := h.openStream("h3")
	s.ask(t, 1, tables.TenantRest("red")...)
	if got := s.next(t, 1); !got.Withheld {
		t.Fatalf("it gets %+v", got)
	}
	web := model.Service{Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: "ns/web"}, Owner: model.OwnerKubernetes, Network: model.NetworkKey{Tenant: "red", Name: "x"}}
	h.write(func(tx store.Tx) error { return tables.ClusterServices.Put(tx, web) })
	h.relay.Regrade(h.view.HostRows.takeChanged())
	for len(s.rows[1]) == 0 {
		s.next(t, 1)
	}
	if got := s.rows[1]; got[tables.TenantPrefix("red")+"networks/x"] == "" || got[tables.TenantPrefix("red")+"policies/x"] != "" {
		t.Errorf("it reads %v", got)
	}
	h.write(func(tx store.Tx) error {
		tables.ClusterServices.Delete(tx, model.ClusterServiceKey{Namespace: "ns", Name: "web"})
		return nil
	})
	h.relay.Regrade(h.view.HostRows.takeChanged())
	for !s.next(t, 1).Withheld {
		continue
	}
}

// TestEndpointBringsItsTenant: a host gets the rows of a tenant with the commit that makes its
// first endpoint of it, and those of a tenant that shares networks with it; some time after
// the last endpoint is gone they are withheld again.
func TestEndpointBringsItsTenant(t *testing.T) {
	h := newCluster(t)
	h.secretCluster()
	h.write(func(tx store.Tx) error {
		return errors.Join(tables.Tenants.Put(tx, model.Tenant{Name: "red", Shared: []model.NetworkKey{{Tenant: "blue", Name: "x"}}}), tables.Tenants.Put(tx, model.Tenant{Name: "blue", Clients: []model.TenantName{"red"}}))
	})
	now := time.Now()
	h.view.mu.Lock()
	h.view.HostRows.now = func() time.Time { return now }
	h.view.mu.Unlock()
	s := h.openStream("h3")
	s.ask(t, 1, tables.TenantRest("red")...)
	s.ask(t, 2, tables.TenantRest("blue")...)
	if a, b := s.next(t, 1), s.next(t, 2); !a.Withheld || !b.Withheld {
		t.Fatalf("it gets %+v, %+v", a, b)
	}
	h.write(func(tx store.Tx) error { return tables.Endpoints.Put(tx, endpointOf("red", "e1", "h3")) })
	for len(s.rows[1]) == 0 || len(s.rows[2]) == 0 {
		s.next(t, map[bool]int{true: 1, false: 2}[len(s.rows[1]) == 0])
	}
	if s.rows[1][tables.TenantPrefix("red")+"policies/x"] == "" {
		t.Errorf("of red it reads %v", s.rows[1])
	}
	if got := s.rows[2]; got[tables.TenantPrefix("blue")+"networks/x"] == "" || got[tables.TenantPrefix("blue")+"policies/x"] != "" {
		t.Errorf("of blue, whose networks red shares, it reads %v", got)
	}
	h.write(func(tx store.Tx) error {
		tables.Endpoints.Delete(tx, endpointOf("red", "e1", "h3").Key)
		return nil
	})
	h.relay.Regrade(h.view.HostRows.takeChanged())
	if got := h.view.HostRows.Of("h3", "red"); got != tables.AllRows {
		t.Errorf("at once it reads %v", got)
	}
	h.view.mu.Lock()
	now = now.Add(rowsGrace + time.Second)
	h.view.mu.Unlock()
	h.view.HostRows.expire()
	h.relay.Regrade(h.view.HostRows.takeChanged())
	for !s.next(t, 1).Withheld {
		continue
	}
	if len(s.rows[1]) > 0 {
		t.Errorf("later it reads %v", s.rows[1])
	}
}
