package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/rig"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// clusterIP returns the address of the i-th service, and pod the address of the i-th pod,
// as kube-proxy's rules have them.
func clusterIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}) }
func pod(i int) netip.Addr       { return netip.AddrFrom4([4]byte{10, 8, 6, byte(i)}) }

// kubeProxies makes hosts that translate as kube-proxy does, by iptables and by
// nftables, for few services and for many, and one that only routes.
func (r testbed) kubeProxies(ctx context.Context, many int) (paths []path, err error) {
	p, _, err := r.pods(ctx)
	p.name, p.addr = "kernel routes, the provider itself", pod(2)
	if err != nil {
		return nil, err
	}
	paths = append(paths, p)
	for _, kind := range []struct {
		name  string
		rules func(context.Context, *testcluster.Namespace, int) error
	}{{"iptables", iptablesServices}, {"nftables", nftServices}} {
		for _, n := range []int{fewServices, many} {
			p, h, err := r.pods(ctx)
			if err == nil {
				err = kind.rules(ctx, h, n)
			}
			if err != nil {
				return nil, fmt.Errorf("%s for %d services: %w", kind.name, n, err)
			}
			p.name, p.addr = fmt.Sprintf("kube-proxy's %s, one of %d services, %d providers", kind.name, n, fewProviders), clusterIP(n-1)
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// pods makes a host with pods.
func (r testbed) pods(ctx context.Context) (p path, h *testcluster.Namespace, err error) {
	if h, err = r.Namespace(); err != nil {
		return p, nil, err
	}
	p, err = r.podsOf(ctx, h)
	return p, h, err
}

// podsOf makes a client and providers, each on a veth pair that its host routes to.
// Neighbours are permanent: the kernel has one table for all namespaces, which 1,000
// providers of other rows may have filled.
func (r testbed) podsOf(ctx context.Context, h *testcluster.Namespace) (p path, err error) {
	const router, lladdr, all = "10.8.255.254", "02:00:5e:00:00:01", "10.8.6.0/24"
	err = errors.Join(rig.IP(ctx, h, "link set lo up"), h.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
	}))
	if err != nil {
		return p, err
	}
	for i := range fewProviders + 1 {
		name := fmt.Sprintf("p%d", i)
		ns, err := r.Container(ctx, h, name, pod(i+1))
		if err == nil {
			at := pod(i + 1)
			err = errors.Join(
				rig.IP(ctx, h, "link set "+name+" address "+lladdr, "route add "+at.String()+"/32 dev "+name,
					fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", at, rig.MAC(at), name)),
				rig.IP(ctx, ns, "neigh replace "+router+" lladdr "+lladdr+" dev eth0 nud permanent",
					"route add default via "+router, "route add "+all+" via "+router))
		}
		if err != nil {
			return p, err
		}
		if i == 0 {
			p.client = ns
		} else {
			p.servers = append(p.servers, ns)
		}
	}
	p.server = p.servers[0]
	return p, nil
}

// providersOf returns the pods behind a service: all behind the last one, one behind each other.
func providersOf(i, services int) (out []netip.Addr) {
	if i < services-1 {
		return []netip.Addr{pod(2 + i%fewProviders)}
	}
	for k := range fewProviders {
		out = append(out, pod(2+k))
	}
	return out
}

// iptablesServices writes rules in the shape of kube-proxy's mode iptables: a rule for
// each service in one chain, which a packet goes through one after the other; a chain
// for each service, which throws dice; and one for each of its providers. The service
// that is measured stands in the middle.
func iptablesServices(ctx context.Context, h *testcluster.Namespace, n int) error {
	var chains, rules strings.Builder
	order := make([]int, 0, n)
	for i := range n - 1 {
		if i == n/2 {
			order = append(order, n-1)
		}
		order = append(order, i)
	}
	for _, i := range order {
		fmt.Fprintf(&chains, ":KUBE-SVC-%d - [0:0]\n", i)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp -m tcp --dport %d -j KUBE-SVC-%d\n", clusterIP(i), port, i)
		behind := providersOf(i, n)
		for k, a := range behind {
			dice := ""
			if left := len(behind) - k; left > 1 {
				dice = fmt.Sprintf("-m statistic --mode random --probability %.10f ", 1/float64(left))
			}
			fmt.Fprintf(&chains, ":KUBE-SEP-%d-%d - [0:0]\n", i, k)
			fmt.Fprintf(&rules, "-A KUBE-SVC-%d %s-j KUBE-SEP-%d-%d\n", i, dice, i, k)
			fmt.Fprintf(&rules, "-A KUBE-SEP-%d-%d -s %s/32 -j KUBE-MARK-MASQ\n", i, k, a)
			fmt.Fprintf(&rules, "-A KUBE-SEP-%d-%d -p tcp -m tcp -j DNAT --to-destination %s:%d\n", i, k, a, port)
		}
	}
	text := "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n" + chains.String() +
		"-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n" +
		"-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MASQUERADE\n" +
		rules.String() + "COMMIT\n*filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-FORWARD\n" +
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n"
	cmd := h.Command(ctx, "iptables-restore")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// nftServices makes what kube-proxy's mode nftables does: a verdict map from address,
// protocol and port to a service's chain, which leads by a random number to a
// provider's.
func nftServices(_ context.Context, h *testcluster.Namespace, n int) error {
	return h.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		t := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "kube-proxy"})
		key, err := nftables.ConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)
		if err != nil {
			return err
		}
		ips := &nftables.Set{Table: t, Name: "service-ips", IsMap: true, Concatenation: true, KeyType: key, DataType: nftables.TypeVerdict}
		if err := c.AddSet(ips, nil); err != nil {
			return err
		}
		services := c.AddChain(&nftables.Chain{Table: t, Name: "services"})
		c.AddRule(&nftables.Rule{Table: t, Chain: services, Exprs: []expr.Any{
			&expr.Payload{DestRegister: reg32(0), Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32(1)},
			&expr.Payload{DestRegister: reg32(2), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: reg32(0), IsDestRegSet: true, SetID: ips.ID, SetName: ips.Name},
		}})
		for name, hook := range map[string]*nftables.ChainHook{"nat-prerouting": nftables.ChainHookPrerouting, "nat-output": nftables.ChainHookOutput} {
			base := c.AddChain(&nftables.Chain{Table: t, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
			c.AddRule(&nftables.Rule{Table: t, Chain: base, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: services.Name}}})
		}
		masquerade := c.AddChain(&nftables.Chain{Table: t, Name: "mark-for-masquerade"})
		c.AddRule(&nftables.Rule{Table: t, Chain: masquerade, Exprs: []expr.Any{
			&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, 0x4000)},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		}})
		const some = 20 // services that one transaction adds: each message is acknowledged, and a socket has room for some hundred
		for first := 0; first < n; first += some {
			var elements []nftables.SetElement
			for i := first; i < min(first+some, n); i++ {
				chain, err := nftService(c, t, i, providersOf(i, n))
				if err != nil {
					return err
				}
				elements = append(elements, nftables.SetElement{Key: serviceKey(i), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}})
			}
			if err := c.SetAddElements(ips, elements); err != nil {
				return err
			}
			if err := c.Flush(); err != nil {
				return fmt.Errorf("add services %d and more: %w", first, err)
			}
		}
		return nil
	})
}

// reg32 is the i-th register of four bytes.
func reg32(i uint32) uint32 { return unix.NFT_REG32_00 + i }

// serviceKey is address, protocol and port, each in four bytes.
func serviceKey(i int) []byte {
	b := clusterIP(i).AsSlice()
	b = append(b, unix.IPPROTO_TCP, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

// nftService makes the chain of a service and those of its providers.
func nftService(c *nftables.Conn, t *nftables.Table, i int, behind []netip.Addr) (string, error) {
	chain := c.AddChain(&nftables.Chain{Table: t, Name: fmt.Sprintf("service-%d", i)})
	choice := &nftables.Set{Table: t, Name: fmt.Sprintf("__map%d", i), Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: nftables.TypeVerdict}
	var elements []nftables.SetElement
	for k, a := range behind {
		e := c.AddChain(&nftables.Chain{Table: t, Name: fmt.Sprintf("endpoint-%d-%d", i, k)})
		c.AddRule(&nftables.Rule{Table: t, Chain: e, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
			&expr.Verdict{Kind: expr.VerdictJump, Chain: "mark-for-masquerade"},
		}})
		c.AddRule(&nftables.Rule{Table: t, Chain: e, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Immediate{Register: 1, Data: a.AsSlice()},
			&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, port)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
		elements = append(elements, nftables.SetElement{
			Key: binary.NativeEndian.AppendUint32(nil, uint32(k)), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Name},
		})
	}
	if err := c.AddSet(choice, elements); err != nil {
		return "", err
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Numgen{Register: 1, Modulus: uint32(len(behind)), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetID: choice.ID, SetName: choice.Name},
	}})
	return chain.Name, nil
}
