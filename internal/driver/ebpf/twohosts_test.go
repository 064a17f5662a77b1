package ebpf

import (
	"context"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestTwoHosts runs two drivers with pin directories of their own on one
// machine and sends pings, small and bigger than the path, and a TCP stream,
// through the tunnel between them, over IPv4 and IPv6.
func TestTwoHosts(t *testing.T) {
	require(t, "ip", "ping", "iperf3", "sysctl")
	pins := bpfMount(t)
	hosts := []string{namespace(t, "Eh"), namespace(t, "Eh")}
	containers := []string{namespace(t, "Ec"), namespace(t, "Ec")}
	run(t, "ip", "-n", hosts[0], "link", "add", "u0", "mtu", "1600", "type", "veth", "peer", "name", "u0", "mtu", "1600", "netns", hosts[1])
	vteps := []netip.Addr{vtep1, vtep2}
	ip4 := []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	ip6 := []netip.Addr{netip.MustParseAddr("fd00:9::1"), netip.MustParseAddr("fd00:9::2")}
	macs := []model.MAC{{2, 5, 0, 0, 0, 1}, {2, 5, 0, 0, 0, 2}}
	for i, ns := range hosts {
		run(t, "ip", "-n", ns, "link", "set", "u0", "up")
		run(t, "ip", "-n", ns, "addr", "add", vteps[i].String()+"/24", "dev", "u0")
		c := containers[i]
		run(t, "ip", "netns", "exec", c, "sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=0")
		run(t, "ip", "-n", ns, "link", "add", "cvtwo", "type", "veth", "peer", "name", "eth0", "address", macs[i].String(), "netns", c)
		run(t, "ip", "-n", ns, "link", "set", "cvtwo", "up")
		run(t, "ip", "netns", "exec", c, "sysctl", "-q", "-w", "net.ipv6.conf.eth0.disable_ipv6=0")
		run(t, "ip", "-n", c, "link", "set", "eth0", "up")
		run(t, "ip", "-n", c, "link", "set", "lo", "up")
		run(t, "ip", "-n", c, "addr", "add", ip4[i].String()+"/24", "dev", "eth0")
		run(t, "ip", "-n", c, "addr", "add", ip6[i].String()+"/64", "dev", "eth0", "nodad")

		pic := desired.Host{Name: model.HostName(ns), VTEP: vteps[i], ArpMode: model.ArpProxy, Revision: 1}
		pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100, VTEPs: []netip.Addr{vteps[1-i]}})
		pic.PolicySets = pic.PolicySets.Set(1, &desired.PolicySet{ID: 1, In: []desired.Tier{{Default: model.Deny, Rules: []desired.Rule{
			{ID: "r1", Action: model.Allow, Identities: []model.Identity{300}},
		}}}})
		pic.Ports = pic.Ports.Set("cvtwo", &desired.Port{IfName: "cvtwo", Network: 1, MAC: macs[i], IPv4: ip4[i], IPv6: ip6[i], Identity: 300, Policies: 1})
		o := 1 - i
		pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: macs[o]}, &desired.Remote{
			Network: 1, MAC: macs[o], IPv4: ip4[o], IPv6: ip6[o], Identity: 300, VTEP: vteps[o],
		})
		th := newThread(t, ns)
		var drv *Driver
		var err error
		var rep driver.Report
		th.do(func() {
			drv, err = open(t.Context(), Config{PinDir: filepath.Join(pins, ns), Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				rep, err = drv.Apply(t.Context(), pic)
			}
		})
		if err != nil || len(rep.Problems) > 0 || rep.Ports["cvtwo"].Err != nil {
			t.Fatal(err, rep)
		}
		t.Cleanup(func() {
			s, _ := drv.Stats(context.Background())
			t.Logf("host %d: drops %v", i, s.Drops)
			if err := drv.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, to := range []string{ip4[1].String(), ip6[1].String()} {
		for _, size := range []string{"56", "4000"} { // the bigger one comes in fragments
			run(t, "ip", "netns", "exec", containers[0], "ping", "-c", "3", "-i", "0.05", "-W", "2", "-s", size, to)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	server := exec.CommandContext(ctx, "ip", "netns", "exec", containers[1], "iperf3", "-s")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = server.Wait() }()
	deadline := time.Now().Add(5 * time.Second)
	for exec.CommandContext(t.Context(), "ip", "netns", "exec", containers[0], "iperf3", "-c", ip4[1].String(), "-n", "1").Run() != nil {
		if time.Now().After(deadline) {
			t.Fatal("iperf3 does not answer")
		}
	}
	s := run(t, "ip", "netns", "exec", containers[0], "iperf3", "-c", ip4[1].String(), "-t", "2", "-f", "g")
	for l := range strings.SplitSeq(s, "\n") {
		if strings.Contains(l, "receiver") {
			t.Log(l)
		}
	}
}
