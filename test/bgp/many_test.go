//go:build integration

package bgp

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/fabric"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Of a router that tells of as many prefixes as it may all are followed, on both data
// planes; of one that tells of a million none are, the status says so, other sessions go on,
// and memory is bounded.
func TestRoutersWithManyPrefixesAreFollowed(t *testing.T) {
	h := newHosts(t, testcluster.DriverMixed, 2)
	vtysh(t, "configure terminal", "router bgp 500", "neighbor "+otherIP+" remote-as 65002", "neighbor "+otherIP+" timers connect 1")
	both := fmt.Sprintf(birdNeighbor, "h1", routerIP) + fmt.Sprintf(birdNeighbor, "h2", otherIP)
	_, configure := h.addBIRD(birdRouter + many(10_000) + both)
	for i, ip := range []string{routerIP, otherIP} {
		h.netctl(fmt.Sprintf("bgp create --router-ip %s/24 --as 65002 --neighbor %s --neighbor-as 500 --neighbors 50.1.1.201@501 h%d", ip, routerAddr, i+1))
	}
	routes := func(x *testcluster.Host, want string, n int) {
		t.Helper()
		until(t, fmt.Sprintf("%d routes on %s", n, x.Name), func() (bool, string) {
			out, err := x.Run(t.Context(), "ip", "route", "show", "proto", "198")
			return err == nil && strings.Count(out, "\n") == n && strings.Contains(out, want), fmt.Sprintf("%d: %v", strings.Count(out, "\n"), err)
		})
	}
	begin := time.Now()
	for _, x := range h.Hosts() {
		routes(x, "20.39.15.0/24 via 50.1.1.201", 10_001) // and FRR's
		t.Logf("%s (%s) follows 10,000 after %s, memory %d MiB", x.Name, x.Driver(), time.Since(begin), memory(t, x))
	}
	begin = time.Now()
	configure(birdRouter + many(1_000_000) + both)
	for _, x := range h.Hosts() {
		until(t, "the limit on "+x.Name, func() (bool, string) {
			out, err := x.Run(t.Context(), "curl", "-s", "127.0.0.1:9006/inspect/bgp")
			var told fabric.Inspection
			if err != nil || json.Unmarshal([]byte(out), &told) != nil || len(told.Peers) != 2 {
				return false, out
			}
			frr, bird := told.Peers[0], told.Peers[1]
			return bird.State == bgp.Limit && strings.Contains(bird.Problem, "more than 10000 prefixes") && frr.State == bgp.Established && frr.Flaps == 0 &&
				strings.Contains(told.Problems["BGP session 50.1.1.201"], "more than 10000 prefixes"), fmt.Sprintf("%+v %v", told.Peers, told.Problems)
		})
		routes(x, "10.50.0.0/16 via "+routerAddr, 1)
		t.Logf("%s (%s) refuses 1,000,000 after %s, memory %d MiB", x.Name, x.Driver(), time.Since(begin), memory(t, x))
	}
}

// many is BIRD's configuration of so many prefixes.
func many(n int) string {
	var b strings.Builder
	b.WriteString("protocol static { ipv4;\n")
	for i := range n {
		fmt.Fprintf(&b, "route %d.%d.%d.0/24 blackhole;\n", 20+i>>16, i>>8&255, i&255)
	}
	b.WriteString("}\n")
	return b.String()
}

// memory is how much netplugin has resident, in MiB.
func memory(t *testing.T, x *testcluster.Host) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.Agent().PID))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
