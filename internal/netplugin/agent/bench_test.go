package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// benchCluster is a store of one tenant with n endpoints on 25 hosts, a network
// and four rules for each 40 of them.
type benchCluster struct {
	b        *testing.B
	st       store.Store
	master   *master
	endpoint func(i int) model.Endpoint
	network  model.NetworkKey // of the next endpoint: the agent has it
}

const benchHosts = 25

func benchHost(i int) model.HostName { return model.HostName(fmt.Sprint("h", i%benchHosts)) }

func newBenchCluster(b *testing.B, st store.Store, n int) *benchCluster {
	b.Helper()
	testenv.Need(b)
	const perNetwork = 40
	name := func(i int) string { return fmt.Sprint("n", i) }
	network := func(i int) model.NetworkKey {
		return model.NetworkKey{Tenant: "blue", Name: model.NetworkName(name(i))}
	}
	networks := max(1, n/perNetwork)
	endpoint := func(i int) model.Endpoint {
		at := i % networks
		k := network(at)
		v4 := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		return model.Endpoint{
			Key:   model.EndpointKey{Network: k, ID: model.EndpointID(fmt.Sprint("e", i))},
			Group: model.GroupName("g" + name(at)), Host: benchHost(i), IPv4: v4, MAC: model.EndpointMAC(k, v4, netip.Addr{}),
			Identity: model.IdentityFirst + model.Identity(at), Container: fmt.Sprintf("%064d", i),
		}
	}
	x := &benchCluster{b: b, st: st, master: newMaster(b, st), endpoint: endpoint, network: endpoint(n + 1).Key.Network}
	x.put(func(tx store.Tx) error {
		return errors.Join(tables.Globals.Put(tx, model.DefaultGlobal()), tables.Tenants.Put(tx, model.Tenant{Name: "blue"}))
	})
	for i := 1; i < benchHosts; i++ { // the first is the agent's own
		x.put(func(tx store.Tx) error {
			return tables.Hosts.Put(tx, model.Host{Name: benchHost(i), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
		})
	}
	for i := range networks {
		group := model.GroupKey{Tenant: "blue", Name: model.GroupName("g" + name(i))}
		policy := model.PolicyKey{Tenant: "blue", Name: model.PolicyName("p" + name(i))}
		x.put(func(tx store.Tx) error {
			err := errors.Join(
				tables.Networks.Put(tx, model.Network{
					Key: network(i), Type: model.NetworkData, Encap: model.EncapVXLAN, Tag: uint32(i + 1), ID: model.NetworkID(i + 1), Subnet: netip.MustParsePrefix("10.0.0.0/8"),
				}),
				tables.Identities.Put(tx, model.IdentityRecord{ID: model.IdentityFirst + model.Identity(i), Network: network(i), Group: group.Name}),
				tables.Policies.Put(tx, model.ContivPolicy{Key: policy}.General()),
				tables.Groups.Put(tx, model.Group{
					Key: group, Network: network(i).Name, ID: model.IdentityFirst + model.Identity(i), Policies: []model.PolicyName{policy.Name},
				}))
			for r := range 4 {
				err = errors.Join(err, tables.Rules.Put(tx, model.Rule{
					Key: model.RuleKey{Tenant: "blue", Policy: policy.Name, Rule: model.RuleID(name(r))}, Direction: model.In, Priority: 1 + r,
					Action: model.Allow, Protocol: model.ProtoTCP, Port: uint16(80 + r), Group: group.Name,
				}.General()))
			}
			return err
		})
	}
	const batch = 20
	for i := 1; i <= n; i += batch {
		x.put(func(tx store.Tx) error {
			for j := i; j < min(i+batch, n+1); j++ {
				if err := tables.Endpoints.Put(tx, endpoint(j)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return x
}

func (x *benchCluster) put(fn func(store.Tx) error) store.Revision {
	x.b.Helper()
	rev, err := x.st.Update(x.b.Context(), fn)
	if err != nil {
		x.b.Fatal(err)
	}
	return rev
}

// benchAgent is a host's agent, with the reference data plane and a connection of its own.
type benchAgent struct {
	*Agent
	b       *testing.B
	network model.NetworkKey
}

func (x *benchCluster) agent(host model.HostName, st store.Store) benchAgent {
	b := x.b
	b.Helper()
	addr := netip.MustParseAddr("10.9.0.1")
	a, err := New(b.Context(), Config{
		Host: host, Control: addr, VTEP: addr, DriverName: "fake", Driver: reference.New(), Store: st, Log: slog.New(slog.DiscardHandler),
		StateDir: filepath.Join(b.TempDir(), "state"), Socket: filepath.Join(shortDir(b), "cni.sock"), Netmasters: x.master.URL, UnderlayMTU: 1500,
	})
	if err != nil {
		b.Fatal(err)
	}
	a.mirror.cluster.Require(x.network)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	return benchAgent{a, b, x.network}
}

// follow waits until the data plane has what the agent's network was at a revision.
func (a benchAgent) follow(rev store.Revision) {
	a.b.Helper()
	ctx, cancel := context.WithTimeout(a.b.Context(), 30*time.Second)
	defer cancel()
	for {
		o, changed := a.reached.Get()
		if at, ok := o.Revs.Endpoints(a.network); o.Err == nil && ok && at >= rev {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			a.b.Fatalf("the agent is at %v, not at %d: %v", o.Revs, rev, o.Err)
		}
	}
}

// BenchmarkChange measures endpoints on another host that come and go one after
// the other, from the commit to the data plane, by how many endpoints there are:
// the processor's time for each, the in-memory store's included. urgent has a
// pass for each, as endpoints of this host have; bursts share passes.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 4_000, 20_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			st := memory.New()
			x := newBenchCluster(b, st, n)
			a := x.agent(benchHost(0), st.Client())
			extra := x.endpoint(n + 1)
			extra.Host = benchHost(1)
			a.follow(x.put(func(tx store.Tx) error { return tables.Endpoints.Put(tx, extra) }))
			runtime.GC() // the waste of the preparation is not the subject
			there := true
			change := func() store.Revision {
				there = !there
				return x.put(func(tx store.Tx) error {
					if there {
						return tables.Endpoints.Put(tx, extra)
					}
					tables.Endpoints.Delete(tx, extra.Key)
					return nil
				})
			}
			measure := func(name string, do func(n int)) {
				b.Run(name, func(b *testing.B) {
					x.b, a.b = b, b
					b.ReportAllocs()
					begin := stats.ProcessorTime(syscall.RUSAGE_SELF)
					do(b.N)
					b.ReportMetric(float64((stats.ProcessorTime(syscall.RUSAGE_SELF)-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
				})
			}
			measure("urgent", func(n int) {
				for range n {
					rev := change()
					a.mirrored(rev)
					a.kick("urgent")
					a.follow(rev)
				}
			})
			measure("bursts", func(n int) {
				var rev store.Revision
				for range n {
					rev = change()
				}
				a.follow(rev)
			})
		})
	}
}

// mirrored waits until the mirror of the agent's network has a revision.
func (a benchAgent) mirrored(rev store.Revision) {
	a.b.Helper()
	ctx, cancel := context.WithTimeout(a.b.Context(), 30*time.Second)
	defer cancel()
	if err := a.mirror.cluster.Lookup.AwaitRevision(ctx, statemirror.EndpointsScope(a.network), rev); err != nil {
		a.b.Fatal(err)
	}
}
