//go:build integration

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// knownGaps are damages that cut something off and that not all of status, health and metrics
// tell of, with the reason.
var knownGaps = map[string]string{
	"a row of a service deleted": "status and metrics tell of the address that is still allocated; to hosts, which do not read allocations, it is a service that was deleted, and their /healthz is well",
}

// damages are the kinds of damage on a kind of store: those of operators' mistakes that leave
// daemons, devices and files as no operator wants them, and what else can break.
func (w *world) damages(store string) []*mistake {
	plane, whole := []string{"agent@", "plane@"}, []string{"agent@", "plane@", "master", "store"}
	operators := slices.Concat(daemonMistakes(), deviceMistakes())
	for _, m := range operators {
		m.statusWords, m.noticed = nil, nil // TestOperator leaves each in for that
	}
	own := slices.Concat(w.certificateDamages(), clockDamages(), workloadDamages())
	if w.secure != "" {
		return slices.DeleteFunc(append(own, daemonMistakes()...), func(m *mistake) bool { return m.store != "" && m.store != store })
	}
	all := slices.Concat(operators, own, []*mistake{
		{name: "ovs-vswitchd stopped (SIGSTOP)", only: testcluster.DriverOVS, needs: plane, do: pause("ovs-vswitchd")},
		{name: "ovsdb-server stopped (SIGSTOP)", only: testcluster.DriverOVS, needs: plane, do: pause("ovsdb-server")},
		{name: "ovs-vswitchd killed, and later started", only: testcluster.DriverOVS, needs: plane, do: killFor("ovs-vswitchd")},
		{name: "ovsdb-server killed, and later started", only: testcluster.DriverOVS, needs: plane, do: killFor("ovsdb-server")},
		{name: "a row of a policy", needs: whole, do: spoilRow("/policies/", rowDeleted, rowCut, rowSwapped)},
		{name: "a row of a group", needs: whole, do: spoilRow("/groups/", rowDeleted, rowCut, rowSwapped)},
		{name: "a row of an identity", needs: whole, do: spoilRow("/identities/", rowDeleted, rowCut, rowSwapped)},
		{name: "a row of an endpoint", needs: whole, do: spoilRow("/endpoints/", rowDeleted, rowCut, rowSwapped)},
		{name: "a row of a network", needs: whole, do: spoilRow("/networks/", rowDeleted, rowCut, rowSwapped)},
		{name: "a row of a service", needs: whole, do: spoilRow("/services/", rowCut)},
		{name: "a row of a service deleted", needs: whole, do: spoilRow("/services/", rowDeleted)},
		{name: "a row of a host", needs: whole, do: spoilRow("/state/global/hosts/", rowDeleted, rowCut, rowSwapped)},
		{name: "the rows of the settings", needs: whole, do: spoilRow("/state/global/config/global", rowDeleted, rowCut, rowSwapped)},
		{name: "a container's interface set down", needs: plane, do: containersDown},
		{name: "a foreign rule that drops what is forwarded", needs: plane, do: foreignDrop(nftables.ChainHookForward, 0)},
		{name: "a foreign rule that drops what comes in", needs: plane, do: foreignDrop(nftables.ChainHookInput, 0)},
		{name: "a foreign rule that drops what goes out", needs: plane, do: foreignDrop(nftables.ChainHookOutput, 0)},
		{name: "UDP 4789 dropped", needs: plane, do: foreignDrop(nftables.ChainHookInput, 4789)},
		{name: "entries of a map deleted", only: testcluster.DriverEBPF, needs: plane, do: spoilMap(true)},
		{name: "entries of a map overwritten", only: testcluster.DriverEBPF, needs: plane, do: spoilMap(false)},
		{name: "forwarding switched off", needs: plane, do: sysctl("net/ipv4/ip_forward", "0")},
		{name: "the address of the underlay deleted", needs: plane, do: underlayAddress},
		{name: "routes of the host deleted", needs: plane, do: routesDeleted},
	})
	return slices.DeleteFunc(all, func(m *mistake) bool {
		return knownGaps[m.name] != "" && !*open || m.store != "" && m.store != store || strings.Contains(m.name, "victim")
	})
}

func killFor(daemon string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		name := h.Name + "-" + daemon
		return w.endDaemon(name, func(ctx context.Context) error { return w.startDaemon(ctx, name) })
	}
}

// rows returns a client of the store.
func (w *world) rows(ctx context.Context) (*clientv3.Client, error) {
	as, err := w.client("netmaster") // who alone may write
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Context: ctx, TLS: as, Endpoints: []string{w.Store.StoreURL()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return w.Master.Dial(ctx, "tcp", to) })},
	})
}

// What may become of a row.
const (
	rowDeleted = iota
	rowCut     // in half
	rowSwapped // for another of its kind
)

// spoilRow changes a row of the store by hand, in one of some ways.
func spoilRow(kind string, ways ...int) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
		c, err := w.rows(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		got, err := c.Get(ctx, "/contiv.io/state/", clientv3.WithPrefix())
		if err != nil {
			return nil, err
		}
		kvs := slices.DeleteFunc(got.Kvs, func(kv *mvccpb.KeyValue) bool { return !strings.Contains(string(kv.Key), kind) })
		if len(kvs) == 0 {
			return nil, fmt.Errorf("no row of %d has a key with %s", len(got.Kvs), kind)
		}
		row, other := kvs[r.IntN(len(kvs))], kvs[r.IntN(len(kvs))]
		key, was := string(row.Key), string(row.Value)
		switch how := ways[r.IntN(len(ways))]; {
		case how == rowDeleted || how == rowSwapped && bytes.Equal(row.Value, other.Value):
			w.t.Logf("row %s deleted", key)
			_, err = c.Delete(ctx, key)
		case how == rowCut:
			w.t.Logf("row %s cut in half", key)
			_, err = c.Put(ctx, key, was[:len(was)/2])
		default:
			w.t.Logf("row %s is the one of %s", key, other.Key)
			_, err = c.Put(ctx, key, string(other.Value))
		}
		return func(ctx context.Context) error {
			c, err := w.rows(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Put(ctx, key, was)
			return err
		}, err
	}
}

// containersDown sets the host's side of a container's interface down.
func containersDown(_ context.Context, _ *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
	links, err := h.NS.Links()
	links = slices.DeleteFunc(links, func(l string) bool { return !strings.HasPrefix(l, "cv") })
	if err != nil || len(links) == 0 {
		return nil, err
	}
	name := links[r.IntN(len(links))]
	return func(context.Context) error { return h.NS.SetLink(name, true) }, h.NS.SetLink(name, false)
}

// foreignDrop adds a table of somebody else's that drops all packets at a hook, or those to
// an UDP port.
func foreignDrop(hook *nftables.ChainHook, port uint16) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "foreign"}
		change := func(fn func(*nftables.Conn)) error {
			return h.NS.Do(func() error {
				c, err := nftables.New()
				if err != nil {
					return err
				}
				fn(c)
				return c.Flush()
			})
		}
		return func(context.Context) error {
				return change(func(c *nftables.Conn) { c.DelTable(table) })
			}, change(func(c *nftables.Conn) {
				c.AddTable(table)
				chain := c.AddChain(&nftables.Chain{Name: "drop", Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
				var match []expr.Any
				switch {
				case port > 0:
					match = []expr.Any{
						&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
						&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{17}},
						&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
						&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(port >> 8), byte(port)}},
					}
				case *hook != *nftables.ChainHookForward: // what goes to and from the containers, and not the host's own connections
					match = []expr.Any{
						&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
						&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("ctl0"), make([]byte, 12)...)},
						&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
						&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("ctl0"), make([]byte, 12)...)},
						&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
						&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("lo"), make([]byte, 14)...)},
						&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
						&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("lo"), make([]byte, 14)...)},
					}
				}
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match, &expr.Verdict{Kind: expr.VerdictDrop})})
			})
	}
}

// spoilMap deletes all entries of one of our pinned maps, or overwrites them with zeros.
func spoilMap(deleted bool) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
		pins, err := filepath.Glob(filepath.Join(h.PinDir(), "maps", "*"))
		if err != nil || len(pins) == 0 {
			return nil, errors.Join(err, fmt.Errorf("no maps are pinned below %s", h.PinDir()))
		}
		pin := pins[r.IntN(len(pins))]
		m, err := ebpf.LoadPinnedMap(pin, nil)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		var keys [][]byte
		key, value := []byte{}, []byte{}
		per := int(m.ValueSize())
		if m.Type() != ebpf.Hash && m.Type() != ebpf.LRUHash && m.Type() != ebpf.LPMTrie {
			return nil, nil //nolint:nilnil // an array, a ring or a map of programs has no entries to take away
		}
		for it := m.Iterate(); it.Next(&key, &value); {
			keys = append(keys, slices.Clone(key))
		}
		for _, k := range keys {
			if deleted {
				err = errors.Join(err, m.Delete(k))
			} else {
				err = errors.Join(err, m.Put(k, make([]byte, per)))
			}
		}
		w.t.Logf("%d entries of %s", len(keys), filepath.Base(pin))
		return func(context.Context) error { return nil }, err
	}
}

// sysctl sets a parameter of a host's kernel.
func sysctl(name, value string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		path := filepath.Join("/proc/sys", name)
		var was []byte
		set := func(v []byte) error { return h.NS.Do(func() error { return os.WriteFile(path, v, 0o644) }) }
		err := h.NS.Do(func() (err error) { was, err = os.ReadFile(path); return err })
		return func(context.Context) error { return set(was) }, errors.Join(err, set([]byte(value)))
	}
}

// underlayAddress takes the address away from the interface of the tunnels, and with it what
// routes the environment has by it.
func underlayAddress(_ context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	var had []netlink.Addr
	var routes []netlink.Route
	err := inHost(h, "eth0", func(l netlink.Link) (err error) {
		if routes, err = netlink.RouteList(l, netlink.FAMILY_V4); err != nil {
			return err
		}
		if had, err = netlink.AddrList(l, netlink.FAMILY_V4); err != nil {
			return err
		}
		for _, a := range had {
			err = errors.Join(err, netlink.AddrDel(l, &a))
		}
		return err
	})
	return func(context.Context) error {
		return inHost(h, "eth0", func(l netlink.Link) (err error) {
			for _, a := range had {
				err = errors.Join(err, netlink.AddrReplace(l, &a))
			}
			for _, rt := range routes {
				err = errors.Join(err, netlink.RouteReplace(&rt))
			}
			return err
		})
	}, err
}

// routesDeleted deletes the routes by which a host reaches containers.
func routesDeleted(_ context.Context, _ *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return func(context.Context) error { return nil }, inHost(h, "contivh0", func(l netlink.Link) error {
		routes, err := netlink.RouteList(l, netlink.FAMILY_V4)
		for _, rt := range routes {
			err = errors.Join(err, netlink.RouteDel(&rt))
		}
		return err
	})
}
