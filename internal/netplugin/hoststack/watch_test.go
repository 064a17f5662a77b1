package hoststack

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// TestChangesByOthersAreRepaired: a change of the host's stack by others is reported, and the next sync repairs
// it.
func TestChangesByOthersAreRepaired(t *testing.T) {
	s := newSite(t)
	s.want.Control = &Control{Ports: []uint16{9999}, Targets: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:2379")}}
	s.good()
	before := s.state()
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- in(t, s.host, func() error {
			return s.stack.Watch(ctx, Watching{Changed: func() {
				select {
				case told <- struct{}{}:
				default:
				}
			}, Firewall: func() {}})
		})
	}()
	<-told // it listens
	looking := make(chan struct{})
	go func() { // as the agent does
		defer close(looking)
		for {
			select {
			case <-told:
				if p := s.apply(); len(p) > 0 {
					t.Errorf("Apply() = %v", p)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-looking
		if err := <-ended; err != nil {
			t.Errorf("Watch() = %v", err)
		}
	}()
	tables := func(fn func(*nftables.Conn)) func() {
		return func() {
			if err := in(t, s.host, func() error {
				c, err := nftables.New()
				if err != nil {
					return err
				}
				fn(c)
				return c.Flush()
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	inet := &nftables.Table{Family: nftables.TableFamilyINet, Name: TableName}
	for _, x := range []struct {
		name  string
		drift string // what is reported; empty = nothing
		do    func()
	}{
		{"the table of egress deleted", "rules ip " + TableName, tables(func(c *nftables.Conn) {
			c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: TableName})
		})},
		{"a chain emptied", "rules inet " + TableName, tables(func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Table: inet, Name: "input"}) })},
		{"a set emptied", "rules inet " + TableName, tables(func(c *nftables.Conn) {
			c.FlushSet(&nftables.Set{Table: inet, Name: setPorts, KeyType: nftables.TypeInetService})
		})},
		{"the address deleted", "device " + desired.HostInterface, func() {
			run(t, "ip", "-n", s.host, "addr", "del", s.want.Private.Addr.String()+"/16", "dev", desired.HostInterface)
		}},
		{"the route deleted", "", func() { run(t, "ip", "-n", s.host, "route", "del", "172.19.0.0/16", "dev", desired.HostInterface) }},
		{"forwarding switched off", "", func() {
			if err := in(t, s.host, func() error { return writeSysctl("net/ipv4/ip_forward", "0") }); err != nil {
				t.Fatal(err)
			}
		}},
		{"the interface set down", "device " + desired.HostInterface, func() { run(t, "ip", "-n", s.host, "link", "set", desired.HostInterface, "down") }},
	} {
		x.do()
		now, reported := "", x.drift == ""
		for deadline := time.Now().Add(time.Minute); (now != before || !reported) && time.Now().Before(deadline); {
			now, reported = s.state(), reported || s.repairs.take(x.drift)
		}
		if !reported {
			t.Errorf("%s: %q is not reported as drift", x.name, x.drift)
		}
		if now != before {
			t.Errorf("%s: at the end the stack has\n%s\nand had\n%s", x.name, now, before)
		}
	}
}

// state is what the stack has, in words.
func (s *site) state() string {
	s.t.Helper()
	var b strings.Builder
	if err := in(s.t, s.host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
			chains, err := c.ListChainsOfTableFamily(f)
			if err != nil {
				return err
			}
			for _, ch := range chains {
				rules, err := c.GetRules(ch.Table, ch)
				fmt.Fprintln(&b, f, ch.Table.Name, ch.Name, len(rules), err) // it may be being replaced
			}
			sets, err := c.GetSets(&nftables.Table{Family: f, Name: TableName})
			fmt.Fprintln(&b, f, err)
			for _, st := range sets {
				elements, err := c.GetSetElements(st)
				fmt.Fprintln(&b, f, st.Name, len(elements), err)
			}
		}
		forwards, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		b.Write(forwards)
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return b.String() + run(s.t, "ip", "-n", s.host, "-4", "addr", "show", "dev", desired.HostInterface) + run(s.t, "ip", "-n", s.host, "route", "show", "dev", desired.HostInterface)
}
