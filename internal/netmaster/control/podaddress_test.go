package control

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestPodKeepsItsAddress: the addresses for which a pod asked are its name's after it: no
// other pod or endpoint gets them, by asking or by chance, and the next pod of the name
// does, on whichever host, also while the former one's endpoint was never released.
// Addresses that it got by chance, and all after a day, are anybody's.
func TestPodKeepsItsAddress(t *testing.T) {
	c := newCluster(t)
	c.put(network("net", "10.0.0.0/29")) // .1 to .6
	four := netip.MustParseAddr("10.0.0.3")
	pod := func(id, name, uid, host string, ip netip.Addr) model.Endpoint {
		return model.Endpoint{
			Key: model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(id)}, Host: model.HostName(host), Namespace: "shop", IPv4: ip,
			Pod: model.Pod{Name: name, UID: uid, KeepIPv4: ip.IsValid()},
		}
	}
	create := func(e model.Endpoint) (model.Endpoint, error) {
		e, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(e))
		return e, err
	}
	refused := func(what string, e model.Endpoint, why string) {
		t.Helper()
		if got, err := create(e); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v %v, want %q", what, got.IPv4, err, why)
		}
	}
	remove := func(id string) {
		t.Helper()
		_, _, err := c.Endpoints.DeleteEndpoint(testContext(t), Admin(), model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(id)})
		c.ok(err)
	}
	is := func(e model.Endpoint) {
		t.Helper()
		if got, err := create(e); err != nil || got.IPv4 != four {
			t.Fatalf("%s got %v, %v", e.Key.ID, got.IPv4, err)
		}
	}
	is(pod("a", "db-0", "u1", "h1", four))
	refused("another pod", pod("b", "db-1", "u2", "h1", four), "is used by endpoint")
	remove("a")
	refused("another pod", pod("b", "db-1", "u2", "h1", four), "is reserved for pod shop/db-0")
	other := pod("b", "db-0", "u2", "h1", four)
	other.Namespace = "bank"
	refused("a pod of that name elsewhere", other, "is reserved for pod shop/db-0")
	refused("no pod", model.Endpoint{Key: model.EndpointKey{Network: netKey("net"), ID: "b"}, IPv4: four}, "is reserved for pod shop/db-0")
	for _, id := range []string{"x1", "x2", "x3", "x4", "x5"} {
		e, err := create(pod(id, id, id, "h1", netip.Addr{}))
		c.ok(err)
		if e.IPv4 == four {
			t.Errorf("%s got the address by chance", id)
		}
	}
	if _, err := create(pod("x6", "x6", "x6", "h1", netip.Addr{})); !errors.Is(err, model.ErrExhausted) {
		t.Errorf("the last address, which is kept, goes to anybody: %v", err)
	}
	is(pod("a2", "db-0", "u3", "h2", four))
	is(pod("a3", "db-0", "u4", "h3", four)) // h2 never released it
	if eps := c.fresh().Pods.PodEndpoints(); len(eps) != 6 {
		t.Errorf("%d endpoints, want those of five others and the last of db-0", len(eps))
	}
	refused("again by the former", pod("a2", "db-0", "u3", "h2", netip.MustParseAddr("10.0.0.2")), "")
	remove("x1")
	remove("a3")
	c.clock.advance(25 * time.Hour)
	is(pod("z", "db-1", "u9", "h1", four))
}

// TestPodAddressOfAnotherHost: what an agent says of a pod does not give it the endpoint
// that another host has; that the API server says where the pod is does. It takes its
// own host's, and netmaster for itself takes any.
func TestPodAddressOfAnotherHost(t *testing.T) {
	c := newCluster(t)
	c.put(network("net", "10.0.0.0/29"))
	four := netip.MustParseAddr("10.0.0.3")
	ctx := testContext(t)
	create := func(by Actor, id, uid, host string) error {
		_, _, err := c.Endpoints.CreateEndpoint(ctx, by, valid(model.Endpoint{
			Key: model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(id)}, Host: model.HostName(host), Namespace: "shop", IPv4: four,
			Pod: model.Pod{Name: "db-0", UID: uid, KeepIPv4: true},
		}))
		return err
	}
	as := func(host string) Actor { return Agent(model.HostName(host)) }
	c.ok(create(as("h1"), "a", "u1", "h1"))
	for what, by := range map[string]Actor{"says so": as("h2"), "the pod is elsewhere": as("h2").OfPodOn("h1"), "nobody knows where it is": as("h2").OfPodOn("")} {
		if err := create(by, "b", "u2", "h2"); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), `belongs to host "h1"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if eps := c.fresh().Pods.PodEndpoints(); len(eps) != 1 {
		t.Errorf("%d endpoints, want that of h1", len(eps))
	}
	c.ok(create(as("h1"), "a2", "u2", "h1"))
	c.ok(create(as("h2").OfPodOn("h2"), "b", "u3", "h2"))
	c.ok(create(Admin(), "c", "u4", "h3"))
}

// TestReservationsOutlastClockDifferences: with the clocks of two netmasters hours apart an address is kept all
// the same, for so much longer or shorter: the pod that comes back gets it by either.
func TestReservationsOutlastClockDifferences(t *testing.T) {
	for _, apart := range []time.Duration{-6 * time.Hour, 6 * time.Hour} {
		t.Run(apart.String(), func(t *testing.T) {
			st := memory.New()
			a, b := onStore(t, st), onStore(t, st)
			b.clock.advance(apart)
			a.put(network("net", "10.0.0.0/29"))
			four := netip.MustParseAddr("10.0.0.3")
			pod := func(id, name string) model.Endpoint {
				return model.Endpoint{
					Key: model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(id)}, Host: "h1", Namespace: "shop", IPv4: four,
					Pod: model.Pod{Name: name, UID: id, KeepIPv4: true},
				}
			}
			create := func(c *harness, e model.Endpoint) error {
				c.fresh()
				_, _, err := c.Endpoints.CreateEndpoint(testContext(t), Admin(), valid(e))
				return err
			}
			remove := func(c *harness, id string) {
				t.Helper()
				_, _, err := c.Endpoints.DeleteEndpoint(testContext(t), Admin(), model.EndpointKey{Network: netKey("net"), ID: model.EndpointID(id)})
				c.ok(err)
			}
			a.ok(create(a, pod("1", "db-0")))
			remove(a, "1")
			if err := create(b, pod("2", "db-1")); !errors.Is(err, model.ErrConflict) {
				t.Errorf("by the other netmaster another pod gets it: %v", err)
			}
			a.ok(create(b, pod("3", "db-0")))
			remove(b, "3")
			a.ok(create(a, pod("4", "db-0")))
			remove(a, "4")
			b.clock.advance(25*time.Hour - apart)
			a.ok(create(b, pod("5", "db-1")))
		})
	}
}
