package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// answer gives a host all addresses that it could answer for: there is no other host.
func (m *master) answer(w http.ResponseWriter, r *http.Request) {
	var req api.L2AnnouncerReport
	m.serve(w, r, &req, func() (any, error) {
		_, err := apiserver.L2AnnouncerReport(req)
		return api.L2AnnouncerResponse{Held: req.Able}, err
	})
}

// TestHostAnnouncesAddressesOfItsLink: a host answers for a load balancer's address of its own link's subnet
// while it leads there, says so, and says what keeps it from that.
func TestHostAnnouncesAddressesOfItsLink(t *testing.T) {
	b := newWayOutBed(t)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	try(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up1"}))
	up, err := netlink.LinkByName("up0")
	try(err)
	t.Cleanup(func() { _ = netlink.LinkDel(up) })
	own, err := netlink.ParseAddr("203.0.113.1/24")
	try(err)
	try(netlink.AddrAdd(up, own))
	for _, name := range []string{"up0", "up1"} {
		l, err := netlink.LinkByName(name)
		try(err)
		try(netlink.LinkSetUp(l))
	}
	key := model.NetworkKey{Tenant: model.DefaultTenant, Name: model.ClusterNetwork}
	service := model.Service{
		Key: model.ClusterServiceKey{Namespace: "shop", Name: "web"}.ServiceKey(), Owner: model.OwnerKubernetes, Network: model.ClusterNetworkKey, Addrs: []netip.Addr{netip.MustParseAddr("10.96.0.7")},
		Balanced: []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.7")}, Ports: []model.ServicePort{{Protocol: model.ProtoTCP, Port: 80}},
	}
	b.put(func(tx store.Tx) error {
		n, err := tables.Networks.Get(tx, key)
		if err != nil {
			return err
		}
		n.Routed = true
		if err := tables.Networks.Put(tx, n); err != nil {
			return err
		}
		return tables.ClusterServices.Put(tx, service)
	})
	get := func(path string) string {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+b.agent.RESTAddr().String()+path, nil)
		try(err)
		r, err := http.DefaultClient.Do(req)
		try(err)
		defer func() { _ = r.Body.Close() }()
		text, err := io.ReadAll(r.Body)
		try(err)
		return string(text)
	}
	says := func(problem string, want ...string) func() error {
		return func() error {
			var now L2Announcements
			if err := json.Unmarshal([]byte(get("/inspect/answering")), &now); err != nil {
				return err
			}
			var got []string
			for _, h := range now.Addresses {
				got = append(got, h.Address+" on "+h.Interface)
			}
			if strings.Join(got, ", ") != strings.Join(want, ", ") || !strings.Contains(now.Problem, problem) || problem == "" && now.Problem != "" {
				return fmt.Errorf("it answers for %v (%s), want %v (%s)", got, now.Problem, want, problem)
			}
			if metric := fmt.Sprintf("contiv_netplugin_answered_addresses %d\n", len(want)); !strings.Contains(get("/metrics"), metric) {
				return fmt.Errorf("no %q in the metrics", metric)
			}
			return nil
		}
	}
	b.eventually("it answers for the address of its link", says("", "203.0.113.7 on up0"))
	b.master.gone.Store(true)
	b.eventually("it reaches no netmaster", says("the store is away"))
	b.eventually("the status says so", func() error {
		if text := get("/debug/state"); !strings.Contains(text, "addresses of load balancers") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	b.master.gone.Store(false)
	b.eventually("it answers again", says("", "203.0.113.7 on up0"))
	b.put(func(tx store.Tx) error {
		tables.ClusterServices.Delete(tx, tables.ClusterServices.KeyOf(service))
		return nil
	})
	b.eventually("the service is gone", says(""))
}
