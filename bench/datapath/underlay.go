package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// underlayRules is how many nftables rules each host has that its own packets, and so
// its tunnels' too, go through one after the other.
const underlayRules = 1000

// underlay compares ways between two hosts whose underlay has rules with the same ways
// where it has none: a Docker engine's on both, and a thousand of nftables.
func (b *bench) underlay(ctx context.Context) error {
	return b.with(ctx, testcluster.Config{Name: "bdp8"}, func(r testbed) error {
		var paths []path
		for _, rules := range []bool{false, true} {
			kernel, hosts, err := r.besideKernel(ctx)
			if err != nil {
				return err
			}
			ours, err := pairOn(ctx, nameEBPF, hosts[0], hosts[1], 2, setTen)
			if err != nil {
				return err
			}
			if err := r.Ready(ctx, hosts[:]...); err != nil {
				return err
			}
			if rules {
				if err := r.firewalled(ctx, hosts[0].NS, hosts[1].NS); err != nil {
					return err
				}
				kernel.name, ours.name = kernel.name+ruled, ours.name+ruled
			}
			paths = append(paths, kernel, ours)
		}
		metrics := []metric{connect, latency, stream1}
		res, err := b.measure(ctx, paths, metrics...)
		if err != nil {
			return err
		}
		b.report.paths(fmt.Sprintf("Across two hosts, with and without a Docker engine's iptables rules and %d nftables rules on each host", underlayRules), paths, res, metrics...)
		t := b.report.table("What the rules leave of each way", "path", connect.name, latency.name, stream1.name)
		for i, p := range paths[:2] {
			cells := []any{p.name}
			for _, m := range metrics {
				cells = append(cells, stats.Compare(res.of(paths[2+i].name, m.name), res.of(p.name, m.name)).String())
			}
			t.row(cells...)
		}
		return nil
	})
}

const ruled = ", rules on the underlay"

// firewalled gives hosts the rules of a Docker engine that runs on the first of them,
// and a thousand of nftables on what comes in and goes out.
func (r testbed) firewalled(ctx context.Context, hosts ...*testcluster.Namespace) error {
	if err := r.engine(ctx, hosts[0]); err != nil {
		return err
	}
	text, err := hosts[0].Command(ctx, "iptables-save").Output()
	if err != nil {
		return fmt.Errorf("iptables-save: %w", err)
	}
	for i, h := range hosts {
		if i > 0 {
			cmd := h.Command(ctx, "iptables-restore")
			cmd.Stdin = strings.NewReader(string(text))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("iptables-restore: %w: %s", err, out)
			}
		}
		if err := h.Do(firewallRules); err != nil {
			return fmt.Errorf("nftables rules on %s: %w", h.Name, err)
		}
	}
	return nil
}

// firewallRules writes rules that drop UDP to unused ports, in the input and output chains.
func firewallRules() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"})
	for name, hook := range map[string]*nftables.ChainHook{"input": nftables.ChainHookInput, "output": nftables.ChainHookOutput} {
		chain := c.AddChain(&nftables.Chain{Table: t, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
		for i := range underlayRules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, uint16(20000+i))},
				&expr.Verdict{Kind: expr.VerdictDrop},
			}})
			if i%50 == 49 { // each message is acknowledged, and a socket has room for some hundred
				if err := c.Flush(); err != nil {
					return err
				}
			}
		}
	}
	return c.Flush()
}
