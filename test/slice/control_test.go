//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	election "github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestContainersReachTheControlPlaneOnlyIfAllowed walks the ways from containers of two tenants to netmaster,
// the store and the netplugins: all lead there with
// --containers-reach-control-plane, and none without, while the hosts go them.
func TestContainersReachTheControlPlaneOnlyIfAllowed(t *testing.T) {
	shared(t)
	onOne(t, both, controlPlane)
}

func controlPlane(t *testing.T, driver string) {
	c := up(t, driver, "ctl", 2, func(cfg *testcluster.Config) { cfg.AgentArgs = []string{"--rest-address", "0.0.0.0:9006"} })
	h1, h2 := c.host("h1"), c.host("h2")
	c.netctl(
		"tenant create blue", "tenant create red",
		"network create -t blue -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 vx",
		"network create -t red -e vlan -s 10.1.1.0/24 vl",
	)
	c.add(spec("x", "h1", "blue/vx"), spec("v", "h1", "red/vl"), spec("y", "h1", "blue/vx"))
	master, beside := "10.251.0.2", "10.250.0.2" // of the machine of netmaster and the store
	store := strings.TrimPrefix(c.Store.StoreURL(), "http://")
	for _, rule := range []string{
		"--dport 18080 -j DNAT --to " + store, "--dport 18081 -j REDIRECT --to-ports 9006",
	} {
		if out, err := h1.Run(t.Context(), "iptables-nft", strings.Fields("-t nat -A PREROUTING -p tcp "+rule)...); err != nil {
			t.Fatal(err, out)
		}
	}
	// A port that a container publishes is its own, whatever its number inside.
	if _, err := h1.Attach().Publish(t.Context(), attach.PublishRequest{
		Key: c.key("y"), Ports: []attach.PortBinding{{Proto: model.ProtoTCP, HostPort: 8080, ContainerPort: 80}},
	}); err != nil {
		t.Fatal(err)
	}
	ways := []string{
		master + ":9999", master + ":9001", store, beside + ":9999",
		h1.Control.String() + ":9006", h1.Address.String() + ":9006", hostAddr.String() + ":9006", routerAddr.String() + ":9006",
		h2.Control.String() + ":9006", h2.Address.String() + ":9006",
		h1.Control.String() + ":18080", hostAddr.String() + ":18081",
	}
	dial := func(ns *testcluster.Namespace, to string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		conn, err := ns.Dial(ctx, "tcp", to)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	walk := func(when string, open bool) {
		t.Helper()
		for _, from := range []string{"x", "v"} {
			for _, to := range ways {
				err := dial(c.space(from), to)
				if open && err != nil || !open && !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s, %s to %s: %v", when, from, to, err)
				}
			}
			c.probe(from, testcluster.Target{Proto: "tcp", Addr: h1.Control, Port: 8080}, testcluster.OK, "y")
			c.probe(from, testcluster.Target{Proto: "icmp", Addr: netip.MustParseAddr(master)}, testcluster.OK, "") // everything else of the machine is as any other's
		}
		for _, h := range []*testcluster.Host{h1, h2} {
			for _, to := range ways[:4] {
				if err := dial(h.NS, to); err != nil {
					t.Errorf("%s, host %s to %s: %v", when, h.Name, to, err)
				}
			}
		}
	}
	walk("at first", false)
	past(c, h1)
	if err := h1.RestartAgent(t.Context(), "CONTIV_NETPLUGIN_CONTAINERS_REACH_CONTROL_PLANE=true"); err != nil {
		t.Fatal(err)
	}
	walk("opened", true)
	if err := h1.RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	walk("after a restart", false)
	if out, err := h1.Run(t.Context(), "curl", "-s", "127.0.0.1:9006/svcstats"); err != nil || !strings.Contains(out, `"control-plane"`) {
		t.Errorf("the counters do not tell of it: %v %s", err, out)
	}
}

// past has a container reach a machine of the control plane past its host, by the
// physical network (another container stands for the machine): its port denies
// it once the cluster knows the machine.
func past(c *cluster, h *testcluster.Host) {
	t := c.t
	c.netctl("network create -t red -e vlan -p 9 -s 10.9.0.0/24 -g 10.9.0.254 --subnetv6 2001:db8:9::/64 --gatewayv6 2001:db8:9::fe phys")
	c.add(spec("ph", "h1", "red/phys"), spec("machine", "h2", "red/phys"))
	if _, err := c.Serve("machine", "tcp/81"); err != nil {
		t.Fatal(err)
	}
	at := []netip.Addr{c.addr("machine", "4"), c.addr("machine", "6")}
	for _, a := range at {
		c.probe("ph", testcluster.Target{Proto: "tcp", Addr: a, Port: 80}, testcluster.OK, "machine")
	}
	records := map[string]string{}
	for _, a := range at {
		records["/contiv.io/service/"+election.ListenService+"/"+netip.AddrPortFrom(a, 80).String()] = fmt.Sprintf(`{"ServiceName":%q,"Role":"netmaster","HostAddr":%q,"Port":80,"Hostname":"machine"}`, election.ListenService, a)
	}
	c.put(records)
	for _, a := range at {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := testcluster.Until(ctx, a.String()+" to be denied", func(ctx context.Context) error {
			if got := c.space("ph").Probe(ctx, testcluster.Target{Proto: "tcp", Addr: a, Port: 80}, 500*time.Millisecond); got.Verdict != testcluster.Denied {
				return fmt.Errorf("it is %s", got)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		cancel()
		c.probe("ph", testcluster.Target{Proto: "tcp", Addr: a, Port: 81}, testcluster.OK, "machine")
	}
	if out, err := h.Run(t.Context(), "curl", "-s", "127.0.0.1:9006/svcstats"); err != nil || !strings.Contains(out, `"control-plane/80"`) {
		t.Errorf("the counters do not name the rule: %v %s", err, out)
	}
}
