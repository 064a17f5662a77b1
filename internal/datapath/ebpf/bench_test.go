package ebpf

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestSpeedOfOneHost measures one TCP stream between two containers of one host
// under a policy, against a bare veth pair between two namespaces, in turn. It
// only reports: other work on the machine moves the figures.
func TestSpeedOfOneHost(t *testing.T) {
	if !conformance.Full() {
		t.Skip("a measurement; run with -full -v")
	}
	require(t, "ip", "iperf3")
	r := newRig(t)
	pic, a, b := r.pair(t)
	drv := r.open(t)
	defer drv.Close()
	rep, err := drv.Apply(t.Context(), pic)
	if err != nil || len(rep.Problems) > 0 {
		t.Fatal(err, rep)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server := exec.CommandContext(ctx, "ip", "netns", "exec", b, "iperf3", "-s")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = server.Wait() }()
	deadline := time.Now().Add(5 * time.Second)
	for exec.CommandContext(t.Context(), "ip", "netns", "exec", a, "iperf3", "-c", "10.8.0.2", "-n", "1").Run() != nil {
		if time.Now().After(deadline) {
			t.Fatal("iperf3 does not answer")
		}
	}
	for range 3 {
		for _, to := range []string{"10.8.0.2", "10.9.0.2"} {
			out := run(t, "ip", "netns", "exec", a, "iperf3", "-c", to, "-t", "2", "-f", "g")
			for l := range strings.SplitSeq(out, "\n") {
				if strings.Contains(l, "receiver") {
					t.Logf("%s: %s", map[string]string{"10.8.0.2": "veth", "10.9.0.2": "ours"}[to], l)
				}
			}
		}
	}
	s, err := drv.Stats(t.Context())
	t.Logf("stats %+v %v", s, err)
}

// pair makes two containers, a and b, under one policy, joined besides by a
// bare veth pair (10.8.0.0/24 beside 10.9.0.0/24).
func (r *rig) pair(t testing.TB) (pic desired.Host, a, b string) {
	t.Helper()
	a, b = namespace(t, "Ea"), namespace(t, "Eb")
	pic = desired.Host{Name: "h1", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100})
	pic.PolicySets = pic.PolicySets.Set(1, &desired.PolicySet{ID: 1, In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(
		desired.Rule{ID: "r1", Action: model.Allow, Identities: desired.IdentitiesOf(300)},
	)}}})
	for i, ns := range []string{a, b} {
		name, ip := "cvspeed"+ns[:2], netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)})
		p := &desired.Port{IfName: name, Network: 1, MAC: model.MAC{2, 5, 0, 0, 0, byte(i + 1)}, IPv4: ip, Identity: 300, Policies: 1}
		pic.Ports = pic.Ports.Set(name, p)
		run(t, "ip", "-n", r.host, "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", p.MAC.String(), "netns", ns)
		run(t, "ip", "-n", r.host, "link", "set", name, "up")
		run(t, "ip", "-n", ns, "link", "set", "eth0", "up")
		run(t, "ip", "-n", ns, "addr", "add", ip.String()+"/24", "dev", "eth0")
	}
	run(t, "ip", "-n", a, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", b)
	for i, ns := range []string{a, b} {
		run(t, "ip", "-n", ns, "link", "set", "v0", "up")
		run(t, "ip", "-n", ns, "addr", "add", netip.AddrFrom4([4]byte{10, 8, 0, byte(i + 1)}).String()+"/24", "dev", "v0")
	}
	return pic, a, b
}

// TestRestartLosesNothing restarts the driver and changes rules again and again
// under a stream of pings, and expects every answer.
func TestRestartLosesNothing(t *testing.T) {
	require(t, "ip", "ping")
	for _, way := range []string{attachTCX, attachClsact} {
		t.Run(way, func(t *testing.T) {
			r := newRig(t)
			r.attach = way
			if way == attachTCX && !bpfattach.HaveTCX(alien(t, tcNext)) {
				t.Skip("TCX came with Linux 6.6")
			}
			pic, a, _ := r.pair(t)
			drv := r.open(t)
			if _, err := drv.Apply(t.Context(), pic); err != nil {
				t.Fatal(err)
			}
			done := make(chan string, 1)
			go func() {
				out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", a, "ping", "-q", "-i", "0.002", "-c", "1000", "10.9.0.2").CombinedOutput()
				done <- fmt.Sprintf("%s%v", out, err)
			}()
			restarts := 0
			for {
				select {
				case out := <-done:
					if !strings.Contains(out, " 0% packet loss") {
						t.Errorf("%d restarts:\n%s", restarts, out)
					}
					t.Logf("%d restarts", restarts)
					if err := drv.Close(); err != nil {
						t.Error(err)
					}
					return
				default:
				}
				if err := drv.Close(); err != nil {
					t.Fatal(err)
				}
				drv = r.open(t)
				set, _ := pic.PolicySets.Get(1)
				next := *set
				next.Name = strconv.Itoa(restarts)
				pic.PolicySets = pic.PolicySets.Set(1, &next)
				if _, err := drv.Apply(t.Context(), pic); err != nil {
					t.Fatal(err)
				}
				restarts++
			}
		})
	}
}

// BenchmarkChange is one remote endpoint's coming or going, by local ports.
func BenchmarkChange(b *testing.B) {
	for _, ports := range []int{1, 100} {
		b.Run(fmt.Sprintf("ports=%d", ports), func(b *testing.B) {
			r := newRig(b)
			pic := desired.Host{Name: "h1", VTEP: vtep1, ArpMode: model.ArpProxy, Revision: 1}
			pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100})
			for i := range ports {
				name := fmt.Sprintf("cvmany%d", i)
				run(b, "ip", "-n", r.host, "link", "add", name, "type", "veth", "peer", "name", "f"+name)
				pic.Ports = pic.Ports.Set(name, &desired.Port{
					IfName: name, Network: 1, MAC: model.MAC{2, 5, 0, 0, 0, byte(i)}, IPv4: netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), Identity: 300,
				})
			}
			drv := r.open(b)
			defer drv.Close()
			k := desired.RemoteKey{Network: 1, MAC: model.MAC{2, 6}}
			apply := func(i int) {
				pic.Remotes = pic.Remotes.Delete(k)
				if i%2 == 0 {
					pic.Remotes = pic.Remotes.Set(k, &desired.Remote{Network: 1, MAC: k.MAC, IPv4: netip.MustParseAddr("10.9.7.7"), Identity: 300, VTEP: vtep2})
				}
				if rep, err := drv.Apply(b.Context(), pic); err != nil || len(rep.Problems) > 0 {
					b.Fatal(err, rep.Problems)
				}
			}
			apply(1)
			i := 0
			for b.Loop() {
				apply(i)
				i++
			}
		})
	}
}
