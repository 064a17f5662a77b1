package hoststack

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// nft runs a script of nft's in the host.
func (s *site) nft(script string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		s.t.Fatal(err)
	}
	run(s.t, "ip", "netns", "exec", s.host, "nft", "-f", file)
}

// firewalld is what firewalld 1.3 makes with the interface up0 in zone public.
const firewalld = `table inet firewalld {
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002:a00::/24 } reject with icmpv6 addr-unreachable
		jump filter_FORWARD_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_FORWARD_ZONES {
		%s
		iifname "up0" goto filter_FWD_public
		goto filter_FWD_public
	}
	chain filter_FWD_public { jump filter_FWD_public_allow; }
	chain filter_FWD_public_allow { }
	chain filter_FWD_trusted { accept; }
}`

// TestFirewallsThatDropContainersAreNamed: whatever a firewall is made of, containers' packets pass, or the problem
// names the chain that drops them; and firewalls that let them pass are no problem, and
// stay as they are.
func TestFirewallsThatDropContainersAreNamed(t *testing.T) {
	iptables := func(s *site, lines ...string) {
		for _, tool := range []string{"iptables-nft", "ip6tables-nft"} {
			for _, line := range lines {
				if tool == "ip6tables-nft" {
					line = strings.NewReplacer("icmp-host-prohibited", "icmp6-adm-prohibited", "203.0.113.0/24", "2001:db8:113::/64").Replace(line)
				}
				run(t, append([]string{"ip", "netns", "exec", s.host, tool}, strings.Fields(line)...)...)
			}
		}
	}
	for name, tc := range map[string]struct {
		setUp   func(*site)
		problem string // part of it; "" = containers reach the outside, and it them
		unnamed string // part of the name server's problem; "" = containers have names
		ours    bool   // exceptions are made
	}{
		"the last rule rejects, as on RHEL": {setUp: func(s *site) {
			iptables(s, "-A FORWARD -m state --state RELATED,ESTABLISHED -j ACCEPT", "-A FORWARD -i lo -j ACCEPT", "-A FORWARD -j REJECT --reject-with icmp-host-prohibited")
		}, ours: true},
		"a chain of its own drops": {setUp: func(s *site) {
			iptables(s, "-N MINE", "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-A FORWARD -j MINE", "-A MINE -i up0 -o up0 -j RETURN", "-A MINE -j DROP")
		}, ours: true},
		"the policy drops": {setUp: func(s *site) { iptables(s, "-P FORWARD DROP") }, ours: true},
		"answers are dropped": {setUp: func(s *site) {
			iptables(s, "-A FORWARD -o contivh0 -j DROP")
		}, ours: true},
		"single destinations and sources are dropped": {setUp: func(s *site) {
			iptables(s, "-A FORWARD -d 203.0.113.0/24 -j DROP", "-A FORWARD -p udp -j REJECT", "-A FORWARD -p tcp --dport 25 -j DROP", "-A FORWARD -m mark --mark 7 -j DROP",
				"-A FORWARD -m limit --limit 1/s -j LOG", "-A FORWARD -m conntrack --ctstate INVALID -j DROP", "-A FORWARD -m statistic --mode random --probability 0.01 -j DROP")
		}},
		"who comes by its interface is let through": {setUp: func(s *site) {
			iptables(s, "-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED,DNAT -j ACCEPT", "-A FORWARD -i contivh+ -j ACCEPT", "-A FORWARD -j REJECT")
		}},
		"firewalld":           {setUp: func(s *site) { s.nft(fmt.Sprintf(firewalld, "")) }, problem: "firewalld filter_FORWARD drop"},
		"firewalld trusts it": {setUp: func(s *site) { s.nft(fmt.Sprintf(firewalld, `iifname "contivh0" goto filter_FWD_trusted`)) }},
		"firewalld trusts some": {setUp: func(s *site) {
			s.nft(fmt.Sprintf(firewalld, `iifname { "docker0", "contivh0" } goto filter_FWD_trusted`))
		}},
		"another's policy drops": {setUp: func(s *site) {
			s.nft("table ip mine { chain f { type filter hook forward priority 0; policy drop; ip saddr 10.0.0.0/8 accept; }; }")
		}, problem: "mine f drop"},
		"another's policy drops all but containers": {setUp: func(s *site) {
			s.nft(`table inet mine { chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; ct status dnat accept; iifname "contivh0" oifname != "contivh0" accept; }; }`)
		}},
		"another drops questions for names": {setUp: func(s *site) {
			s.nft(`table inet mine { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; iifname "lo" accept; tcp dport 22 accept; }; }`)
		}, unnamed: "mine i drop"},
		"another drops answers": {setUp: func(s *site) {
			s.nft(`table inet mine { chain o { type filter hook output priority 0; oifname "contivh0" drop; }; }`)
		}, unnamed: "mine o drop"},
		"another lets names through": {setUp: func(s *site) {
			s.nft(`table inet mine { chain i { type filter hook input priority 0; policy drop; ct state established,related accept; iifname "contivh0" accept; iifname "up0" accept; meta l4proto ipv6-icmp accept; }; }`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite6(t)
			tc.setUp(s)
			if err := s.apply()["name server"]; tc.unnamed == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.unnamed) {
				t.Errorf("the name server's problem is %v, want %q", err, tc.unnamed)
			}
			if tc.unnamed != "" {
				return
			}
			s.want.NameServer, s.want.NameServer6 = 0, 0
			err := s.apply()["firewall"]
			rules := run(t, "ip", "netns", "exec", s.host, "iptables-nft", "-S")
			if ours := strings.Contains(rules, "--comment "+comment); ours != tc.ours {
				t.Errorf("exceptions are made: %v, want %v\n%s", ours, tc.ours, rules)
			}
			if tc.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tc.problem) || !strings.Contains(err.Error(), desired.HostInterface) {
					t.Errorf("the problem is %v, want %q", err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Errorf("the problem is %v, want none", err)
			}
			s.serve(s.beyond, "tcp", far.String()+":443")
			s.serve(s.beyond, "tcp", "["+far6.String()+"]:443")
			s.serve(s.conts, "tcp", web.String()+":80")
			s.asks(question{"beyond", s.conts, "tcp", "", far.String() + ":443", near.String()},
				question{"beyond by IPv6", s.conts, "tcp", "", "[" + far6.String() + "]:443", near6.String()},
				question{"published", s.beyond, "tcp", "", near.String() + ":8080", far.String()})
			s.restartsAsItWas()
		})
	}
}

// TestFirewallIsWatched: a firewall that comes to drop containers' packets, and somebody who
// takes exceptions out of it, is heard, told and mended, without a look at all; what decides
// nothing is not heard.
func TestFirewallIsWatched(t *testing.T) {
	s := newSite(t)
	var log bytes.Buffer
	s.stack = New(slog.New(slog.NewTextHandler(&log, nil)), true, nil, NoRepairs)
	iptables := func(line string) string {
		return run(t, append([]string{"ip", "netns", "exec", s.host, "iptables-nft"}, strings.Fields(line)...)...)
	}
	iptables("-N OTHER")
	iptables("-N ASKED")
	iptables("-A FORWARD -j ASKED")
	s.good()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listens, heard, ended := make(chan struct{}, 100), make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- in(t, s.host, func() error {
			return s.stack.Watch(ctx, Watching{Changed: func() { listens <- struct{}{} }, Firewall: func() { heard <- struct{}{} }})
		})
	}()
	<-listens
	s.serve(s.beyond, "tcp", far.String()+":80")
	after := func(what string, told bool, do func()) {
		t.Helper()
		log.Reset()
		do()
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it is not heard", what)
		}
		if p := s.applyLooking(false); len(p) > 0 {
			t.Errorf("%s: Apply() = %v", what, p)
		}
		if got := strings.Contains(log.String(), "firewall"); got != told {
			t.Errorf("%s: told %v, want %v: %s", what, got, told, &log)
		}
		s.asks(question{what, s.conts, "tcp", "", far.String() + ":80", near.String()})
		for len(heard) > 0 {
			<-heard
		}
	}
	after("the policy drops", true, func() { iptables("-P FORWARD DROP") })
	after("exceptions are taken away", true, func() { iptables("-F FORWARD") })
	after("the policy accepts", false, func() { iptables("-P FORWARD ACCEPT") })
	after("a chain is asked again", false, func() { iptables("-A FORWARD -j ASKED") })
	after("a chain that is asked drops", true, func() { iptables("-A ASKED -j DROP") })
	iptables("-A OTHER -j DROP")
	iptables("-t nat -A POSTROUTING -j RETURN")
	s.nft("table ip later { chain f { type filter hook prerouting priority 0; policy accept; }; }")
	s.nft("table ip later { chain g { type filter hook forward priority 0; policy drop; }; }")
	<-heard
	if len(heard) > 0 {
		t.Error("what decides nothing is heard")
	}
	if err := s.applyLooking(false)["firewall"]; err == nil || !strings.Contains(err.Error(), "later g") {
		t.Errorf("the problem is %v, want that it names later g", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Watch() = %v", err)
	}
}
