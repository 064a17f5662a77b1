package netctl

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// exposedCluster has a service with a backend, a VLAN endpoint, and one with a published port.
func exposedCluster(t *testing.T) (url string) {
	t.Helper()
	st := memory.New()
	url = startNetmasterOn(t, st)
	for _, line := range []string{
		"tenant create blue",
		"network create --tenant blue --subnet 10.1.1.0/24 n",
		"network create --tenant blue --encap vlan --pkt-tag 10 --subnet 10.3.0.0/24 lan",
		"policy create --tenant blue p",
		"group create --tenant blue --policy p n web",
		"policy rule-add --tenant blue --direction in --from-ip-address 198.51.100.0/24 --protocol tcp --port 443 --action allow --priority 2 p 1",
		"policy rule-add --tenant blue --direction in --action deny --priority 1 p rest",
		"network create --subnet 10.2.0.0/24 shop",
		"service create --network shop --selector app=shop --port 80:8080:TCP --preferred-ip 10.2.0.99 shop",
	} {
		if r := netctl(t, url, strings.Fields(line)...); r.code != 0 {
			t.Fatalf("netctl %s: %+v", line, r)
		}
	}
	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, e := range []api.CreateEndpointRequest{
		{TenantName: "blue", NetworkName: "n", EndpointID: "web1", ServiceName: "web", ConfigEP: api.ConfigEP{Host: "host1"}},
		{TenantName: "blue", NetworkName: "lan", EndpointID: "lan1", ConfigEP: api.ConfigEP{Host: "host1"}},
		{TenantName: "default", NetworkName: "shop", EndpointID: "s1", ConfigEP: api.ConfigEP{Host: "host1", Labels: map[string]string{"app": "shop"}}},
	} {
		if _, err := c.CreateEndpoint(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	web1 := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "n"}, ID: "web1"}
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		report := tables.HostStatus{Host: "host1", Published: tables.PublishedPorts{Unlisted: 2, Ports: []tables.PublishedPort{{Endpoint: web1, Protocol: model.ProtoTCP, HostPort: 8443, Port: 443}}}}
		h := model.Host{Name: "host1", VTEP: netip.MustParseAddr("10.0.0.11")}
		return errors.Join(tables.HostStatuses.Put(tx, report), tables.Hosts.Put(tx, h))
	}); err != nil {
		t.Fatal(err)
	}
	return url
}

func TestExposureShowsTheWaysIn(t *testing.T) {
	url := exposedCluster(t)
	const unlisted = "\n2 published ports of hosts beyond 256 of each are not listed.\n"
	for line, want := range map[string]string{
		"exposure": `To               From             By                                                    Ports     Decided by
--               ----             --                                                    -----     ----------
blue:lan:lan1    10.3.0.0/24      vlan                                                  all       in: no rule matches
blue:n:web1      198.51.100.0/24  port host1 0.0.0.0:8443                               tcp/443   in: rule 1 of policy blue:p
default:shop:s1  internet IPv4    service-address 10.2.0.99:80 of service default:shop  tcp/8080  in: no rule matches
` + unlisted,
		"exposure web1 --port udp": "Nothing is open to clients outside or to other tenants.\n" + unlisted,
		"exposure -q":              "",
	} {
		if r := netctl(t, url, strings.Fields(line)...); r.code != ExitOK || r.out != want {
			t.Errorf("netctl %s: exit code %d\n%s%s\nwant\n%s", line, r.code, r.out, r.errOut, want)
		}
	}
	r := netctl(t, url, "exposure", "service:shop", "--json")
	var got api.Exposure
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || len(got.Connections) != 1 || got.Connections[0].Opening != "service-address" {
		t.Errorf("as JSON: %s, %v", r.out, err)
	}
	if r := netctl(t, url, "exposure", "none"); r.code != ExitNotFound {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "can", "internet", "service:shop", "tcp/80"); r.code != ExitOK || !strings.HasPrefix(r.out, "yes: internet to service:shop by tcp/80\n") {
		t.Errorf("%+v", r)
	}
	if r := netctl(t, url, "can", "web1", "host:host1", "udp/53"); r.code != ExitOK || !strings.Contains(r.out, "host:host1") {
		t.Errorf("%+v", r)
	}
}
