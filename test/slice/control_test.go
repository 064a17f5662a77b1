//go:build integration

package slice

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/attach"
	"github.com/contiv/netplugin/v2/internal/lab"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestControlPlane walks the ways from containers of two tenants to netmaster,
// the store and the netplugins: all lead there with
// --containers-reach-control-plane, and none without, while the hosts go them.
func TestControlPlane(t *testing.T) { on(t, 2, both, controlPlane) }

func controlPlane(t *testing.T, driver string) {
	c := up(t, driver, "ctl", 2, func(cfg *lab.Config) { cfg.AgentArgs = []string{"--rest-address", "0.0.0.0:9090"} })
	h1, h2 := c.host("h1"), c.host("h2")
	c.netctl(
		"tenant create blue", "tenant create red",
		"network create -t blue -e vxlan -s 10.1.1.0/24 -g 10.1.1.254 vx",
		"network create -t red -e vlan -s 10.1.1.0/24 vl",
	)
	c.add(spec("x", "h1", "blue/vx"), spec("v", "h1", "red/vl"), spec("y", "h1", "blue/vx"))
	master, beside := "10.251.0.2", "10.250.0.2" // of the machine of netmaster and etcd
	for _, rule := range []string{
		"--dport 18080 -j DNAT --to " + master + ":2379", "--dport 18081 -j REDIRECT --to-ports 9090",
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
		master + ":9999", master + ":9001", master + ":2379", beside + ":9999",
		h1.Control.String() + ":9090", h1.Address.String() + ":9090", hostAddr.String() + ":9090", routerAddr.String() + ":9090",
		h2.Control.String() + ":9090", h2.Address.String() + ":9090",
		h1.Control.String() + ":18080", hostAddr.String() + ":18081",
	}
	dial := func(ns *lab.Namespace, to string) error {
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
			c.probe(from, lab.Target{Proto: "tcp", Addr: h1.Control, Port: 8080}, lab.OK, "y")
			c.probe(from, lab.Target{Proto: "icmp", Addr: netip.MustParseAddr(master)}, lab.OK, "") // the rest of the machine is as any other
		}
		for _, h := range []*lab.Host{h1, h2} {
			for _, to := range ways[:4] {
				if err := dial(h.NS, to); err != nil {
					t.Errorf("%s, host %s to %s: %v", when, h.Name, to, err)
				}
			}
		}
	}
	walk("at first", false)
	if err := h1.RestartAgent(t.Context(), "CONTIV_NETPLUGIN_CONTAINERS_REACH_CONTROL_PLANE=true"); err != nil {
		t.Fatal(err)
	}
	walk("opened", true)
	if err := h1.RestartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	walk("after a restart", false)
	if out, err := h1.Run(t.Context(), "curl", "-s", "127.0.0.1:9090/svcstats"); err != nil || !strings.Contains(out, `"control-plane"`) {
		t.Errorf("the counters do not tell of it: %v %s", err, out)
	}
}
