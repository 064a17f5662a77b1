//go:build integration

package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
)

// config is a speaker's with FRR and BIRD. The hold time is long: what is noticed
// sooner is not noticed by it.
func config() bgp.Config {
	return bgp.Config{
		AS: hostAS, RouterID: netip.MustParseAddr(hostAddr), Listen: []netip.Addr{netip.MustParseAddr(hostAddr)},
		Protected: []netip.Prefix{netip.MustParsePrefix("10.99.1.0/24")},
		Neighbors: []bgp.Neighbor{
			{Address: netip.MustParseAddr(frrAddr), AS: routersAS, Password: frrPassword, IPv4: true, IPv6: true, HoldTime: 180 * time.Second},
			{Address: netip.MustParseAddr(birdAddr), AS: routersAS, IPv4: true, IPv6: true, HoldTime: 180 * time.Second},
		},
	}
}

func announcement(prefix string) bgp.Announcement {
	p := netip.MustParsePrefix(prefix)
	hop := netip.MustParseAddr(hostAddr)
	if p.Addr().Is6() {
		hop = netip.MustParseAddr("fd00::1")
	}
	return bgp.Announcement{Prefix: p, NextHop: hop, Tenant: "default"}
}

func announce(t *testing.T, s *bgp.Speaker, prefixes ...string) {
	t.Helper()
	var wanted []bgp.Announcement
	for _, p := range prefixes {
		wanted = append(wanted, announcement(p))
	}
	if err := s.Announce(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
}

func learned(t *testing.T, s *bgp.Speaker, want map[string]string) {
	t.Helper()
	until(t, "routes", func() (bool, string) {
		got := map[string]string{}
		for p, hops := range s.Routes().Routes {
			var to []string
			for _, h := range hops {
				to = append(to, h.Address.String())
			}
			got[p.String()] = strings.Join(to, " ")
		}
		d := cmp.Diff(want, got)
		return d == "", d
	})
}

func peer(t *testing.T, s *bgp.Speaker, addr, what string, ok func(bgp.PeerState) bool) {
	t.Helper()
	until(t, what, func() (bool, string) {
		st, err := s.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(st.Peers, func(p bgp.PeerState) bool { return p.Address.String() == addr })
		return i >= 0 && ok(st.Peers[i]), fmt.Sprintf("%+v", st.Peers)
	})
}

func established(p bgp.PeerState) bool { return p.State == bgp.Established }

func TestRoutersAndSpeakerFollowEachOther(t *testing.T) {
	need(t)
	frr(t)
	bird(t)
	inFRR, inBIRD := follow(t, "frr"), follow(t, "bird")
	cfg := config()
	cfg.Neighbors[0].Password = "wrong"
	s, err := bgp.Start(t.Context(), cfg, bgp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := s.Close(ctx, false); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	peer(t, s, birdAddr, "a session with BIRD", established)
	peer(t, s, frrAddr, "no session with FRR", func(p bgp.PeerState) bool { return !established(p) && p.Problem != "" })

	cfg.Neighbors = slices.Clone(cfg.Neighbors)
	cfg.Neighbors[0].Password = frrPassword
	if err := s.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	peer(t, s, frrAddr, "a session with FRR", established)
	both := map[string]string{"10.50.0.0/16": frrAddr + " " + birdAddr, "10.60.0.0/16": birdAddr, "fd50::/32": "fd00::2 fd00::3"}
	learned(t, s, both)
	peer(t, s, birdAddr, "one rejected", func(p bgp.PeerState) bool { return p.Why[bgp.ReasonProtected] == 1 && p.Received == 4 && p.Flaps == 0 })

	announce(t, s, "10.7.0.9/32", "fd07::9/128")
	for _, in := range []*routes{inFRR, inBIRD} {
		in.wait(t, "10.7.0.9", true)
		in.wait(t, "fd07::9", true)
	}
	var slowest, slowestGone time.Duration
	for i := range 20 {
		prefix := fmt.Sprintf("10.8.0.%d", i+1)
		begin := time.Now()
		announce(t, s, "10.7.0.9/32", prefix+"/32")
		slowest = max(slowest, inFRR.wait(t, prefix, true).Sub(begin), inBIRD.wait(t, prefix, true).Sub(begin))
		begin = time.Now()
		announce(t, s, "10.7.0.9/32")
		slowestGone = max(slowestGone, inFRR.wait(t, prefix, false).Sub(begin), inBIRD.wait(t, prefix, false).Sub(begin))
	}
	t.Logf("until FRR and BIRD had a route: at most %s of 20, until neither had it: %s", slowest, slowestGone)
	inFRR.wait(t, "fd07::9", false)

	// BIRD tells more than it may; FRR's session does not care.
	cfg.Neighbors = slices.Clone(cfg.Neighbors)
	cfg.Neighbors[1].MaxPrefixes = 2
	if err := s.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	peer(t, s, birdAddr, "the limit", func(p bgp.PeerState) bool {
		return p.State == bgp.Limit && strings.Contains(p.Problem, "more than 2 prefixes")
	})
	inBIRD.wait(t, "10.7.0.9", false)
	learned(t, s, map[string]string{"10.50.0.0/16": frrAddr, "fd50::/32": "fd00::2"})
	peer(t, s, frrAddr, "FRR's session", func(p bgp.PeerState) bool { return established(p) && p.Flaps == 0 })
	cfg.Neighbors = slices.Clone(cfg.Neighbors)
	cfg.Neighbors[1].MaxPrefixes = 3
	if err := s.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	inBIRD.wait(t, "10.7.0.9", true)
	learned(t, s, both)
	if at := inFRR.went("10.7.0.9"); !at.IsZero() {
		t.Errorf("FRR lost a route at %s", at)
	}

	end() // for good, and told
	inFRR.wait(t, "10.7.0.9", false)
	inBIRD.wait(t, "10.7.0.9", false)
}
