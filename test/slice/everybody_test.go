//go:build integration

package slice

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// everybody are the questions of all containers for all others, but for those of
// another tenant whose address one of the asker's has, too.
func (c *cluster) everybody() (qs []testcluster.Question) {
	c.t.Helper()
	of := map[string]bool{}
	for _, a := range c.Containers() {
		of[fmt.Sprint(a.Tenant, a.IPv4)] = true
	}
	for _, from := range c.Containers() {
		for _, to := range c.Containers() {
			if from == to || from.Tenant != to.Tenant && of[fmt.Sprint(from.Tenant, to.IPv4)] {
				continue
			}
			qs = append(qs, c.question(from.Name+" "+to.Name+" tcp/80 4"), c.question(from.Name+" "+to.Name+" tcp/80 6"))
		}
	}
	return qs
}

// reachService is a service of TestContainersReachWhatGroupsAndNetworksAllow, by the last byte of its addresses;
// services at 201 have no provider. Those of tenant default are for external clients too.
type reachService struct {
	tenant, network string
	last            byte
}

var reachServices = []reachService{
	{"blue", "b", 200},
	{"blue", "b", 201},
	{"blue", "v", 200},
	{"infra", "dns", 200},
	{"red", "r", 200},
	{"alone", "a", 200},
	{"default", "d", 200},
	{"default", "d", 201},
}

// makeServices makes them, and tenant default's network and containers, which
// drivertest's topology lacks.
func (c *cluster) makeServices() {
	c.t.Helper()
	c.netctl("network create -t default -e vxlan -s 10.1.8.0/24 -g 10.1.8.1 --subnetv6 fd00:8::/64 --gatewayv6 fd00:8::1 d")
	var specs []testcluster.ContainerSpec
	for _, n := range []string{"1", "2"} {
		s := spec("default-d"+n, "h"+n, "default/d")
		s.Listen, s.Labels = []string{"tcp/80"}, map[string]string{"of": "default-d"}
		specs = append(specs, s)
	}
	c.add(specs...)
	for _, s := range reachServices {
		label := s.tenant + "-" + s.network
		if s.last == 201 {
			label = "nobody"
		}
		a := c.vip(s)
		c.netctl(fmt.Sprintf("service create -t %s -s %s -l of=%s -p 8000:80:TCP --affinity off --ip %s --ip6 %s %s%d", s.tenant, s.network, label, a[0], a[1], s.network, s.last))
	}
}

// vip are a service's addresses.
func (c *cluster) vip(s reachService) [2]netip.Addr {
	c.t.Helper()
	provider := s.tenant + "-" + s.network + "1"
	a, b := c.addr(provider, "4").As4(), c.addr(provider, "6").As16()
	a[3], b[15] = s.last, s.last
	return [2]netip.Addr{netip.AddrFrom4(a), netip.AddrFrom16(b)}
}

// publishAll publishes port 80 of the first host's containers, by their place among
// all, and lets somebody outside know the way to the services.
func (c *cluster) publishAll() {
	c.t.Helper()
	for i, a := range c.Containers() {
		if a.Host != "h1" {
			continue
		}
		bind := []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: publishedPort(i), ContainerPort: 80}}
		if _, err := c.host("h1").Attach().Publish(c.t.Context(), attach.PublishRequest{Key: c.key(a.Name), Ports: bind}); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, args := range []string{"-4 route add default via " + linkAddr.String(), "-6 route add default via " + link6.String()} {
		if out, err := c.space(beyond).Command(c.t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			c.t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
}

func publishedPort(i int) uint16 { return uint16(8100 + i) }

// further are the questions between containers, hosts, a machine beyond the first host, and
// services. Hosts and machines beyond them are only probed for services if the data planes
// support that. In mode bridge a container on a VLAN network is not probed for its own
// service: its answer would go by the physical router, which does not exist here
// (docs/design/services.md).
func (c *cluster) further(mode model.FwdMode) (qs []testcluster.Question) {
	c.t.Helper()
	private := map[string][2]netip.Addr{} // of containers
	led := true                           // hosts, and machines they forward for, reach services
	for _, h := range c.Hosts() {
		s, err := h.AgentState(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		if _, lacks := s.Problems["services from outside"]; lacks {
			led = false
		}
		for _, e := range c.topology().Endpoints {
			if p, ok := s.Ports[compile.IfName(e.Key)]; ok && string(e.Host) == h.Name {
				i := slices.IndexFunc(c.Containers(), func(a *testcluster.Attachment) bool {
					return a.MAC == e.MAC.String() && a.Tenant == string(e.Key.Network.Tenant) && a.Network == string(e.Key.Network.Name)
				})
				private[c.Containers()[i].Name] = [2]netip.Addr{p.Private, p.Private6}
			}
		}
	}
	if !led {
		c.t.Log("the data planes lead nobody outside to services: not asked")
	}
	ask := func(from, to, proto string, a netip.Addr, port uint16, by *testcluster.ByHost) {
		qs = append(qs, testcluster.Question{From: from, To: to, Target: testcluster.Target{Proto: proto, Addr: a, Port: port}, ByHost: by})
	}
	for f := range 2 {
		host, link, out := [2]netip.Addr{hostAddr, host6}[f], [2]netip.Addr{linkAddr, link6}[f], [2]netip.Addr{beyondAddr, beyond6}[f]
		for i, a := range c.Containers() {
			at := netip.AddrPortFrom(private[a.Name][f], 80)
			ask(a.Name, a.Host, "icmp", host, 0, nil)
			ask(a.Host, a.Name, "tcp", at.Addr(), 80, &testcluster.ByHost{Host: a.Host, Src: host, Dst: at})
			if a.Host == "h1" {
				ask(a.Name, beyond, "tcp", out, 80, nil)
				ask(beyond, a.Name, "tcp", link, publishedPort(i), &testcluster.ByHost{Host: a.Host, Src: out, Dst: at})
			}
			for _, s := range reachServices {
				itself := a.Tenant == s.tenant && a.Network == s.network && s.network == "v" && mode == model.FwdBridge
				if !itself && (led || s.tenant != "default" || a.Tenant == "default") {
					ask(a.Name, "", "tcp", c.vip(s)[f], 8000, nil)
				}
			}
		}
		for _, s := range reachServices {
			if !led || s.tenant != "default" {
				continue
			}
			at := netip.AddrPortFrom(c.vip(s)[f], 8000)
			for _, h := range c.Hosts() {
				src := h.Address // which the host asks by
				if f == 1 {
					if src = host; h.Name == "h1" {
						src = link
					}
				}
				ask(h.Name, "", "tcp", at.Addr(), 8000, &testcluster.ByHost{Host: h.Name, Src: src, Dst: at})
			}
			ask(beyond, "", "tcp", at.Addr(), 8000, &testcluster.ByHost{Host: "h1", Src: out, Dst: at})
		}
	}
	return qs
}

// byProvider reports whether an answer of a service is one of its providers'.
func (c *cluster) byProvider(r testcluster.Row) bool {
	return r.To != "" || r.Expected != testcluster.OK || slices.ContainsFunc(reachServices, func(s reachService) bool {
		of := c.vip(s)
		return slices.Contains(of[:], r.Addr) && strings.HasPrefix(r.Seen.From, s.tenant+"-"+s.network)
	})
}
