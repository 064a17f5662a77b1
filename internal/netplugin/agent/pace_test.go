package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// weighedDriver notes by how many entries each pass changes policies, and blocks in big
// ones while hold is set.
type weighedDriver struct {
	driver.Driver
	mu      sync.Mutex
	last    desired.Host
	weights []int
	gate    chan struct{}
	begun   chan struct{} // one for each that stands still
}

func (d *weighedDriver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.mu.Lock()
	n := 0
	for c := range want.PolicySets.Diff(d.last.PolicySets) {
		n += desired.CountDifferences(c.Old, c.New)
	}
	d.last, d.weights = want, append(d.weights, n)
	hold := d.gate
	d.mu.Unlock()
	if n > statemirror.PaceEntries && hold != nil {
		d.begun <- struct{}{}
		<-hold
	}
	return d.Driver.Apply(ctx, want)
}

// given returns the rules of Kubernetes' tier that a tenant's ports were given last, and
// how many passes there were.
func (d *weighedDriver) given(tenant model.TenantName) (rules []desired.Rules, passes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.last.Ports.All() {
		if o.Endpoint.Network.Tenant != tenant {
			continue
		}
		var of desired.Rules
		s, _ := d.last.PolicySets.Get(o.Policies)
		for _, t := range s.In {
			if t.Tier == model.TierKubernetes {
				of = t.Rules
			}
		}
		rules = append(rules, of)
	}
	return rules, len(d.weights)
}

// selectAll puts a policy of so many rules, of 3,904 entries each, to all of a tenant.
func (b *bed) selectAll(tenant model.TenantName, rules int, seed byte) store.Revision {
	k := model.PolicyKey{Tenant: tenant, Name: "p"}
	return b.put(func(tx store.Tx) error {
		err := tables.Policies.Put(tx, model.Policy{
			Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierKubernetes, Order: 100, Default: model.Defaults{In: model.Deny},
			Applies: model.Selector{Tenant: tenant},
		})
		for i := range rules {
			r := model.PolicyRule{Key: model.RuleKey{Tenant: tenant, Policy: "p", Rule: model.RuleID(fmt.Sprintf("r%d", i))}, Direction: model.In, Action: model.Allow, Priority: 1}
			for j := range 61 {
				r.Peers = append(r.Peers, model.Peer{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{20 + seed, byte(i), byte(j), 0}), 24)})
			}
			for j := range 64 {
				r.Ports = append(r.Ports, model.PortMatch{Protocol: model.ProtoTCP, Lo: uint16(1001 + 2*j), Hi: uint16(1001 + 2*j)})
			}
			if e := tables.Rules.Put(tx, r); err == nil {
				err = e
			}
		}
		return err
	})
}

// TestBigPolicyLetsOthersPass: behind a pass with one tenant's big policy comes one with
// what others want, and no big one, whatever that tenant wants meanwhile; a container
// under the big policy starts when it is in force, and not before.
func TestBigPolicyLetsOthersPass(t *testing.T) {
	drv := &weighedDriver{begun: make(chan struct{}, 100)}
	b := newBed(t)
	b.stop()
	b.fake = b.fake.Restart()
	drv.Driver = b.fake
	b.startWith(drv)
	b.ready()
	attachTo := func(tenant, container string) error {
		r := request(container, newSandbox(t))
		r.Tenant = tenant
		_, err := b.client().Attach(t.Context(), r)
		if err == nil {
			t.Cleanup(func() { _ = b.client().Detach(context.Background(), attach.DetachRequest{Key: r.Key}) })
		}
		return err
	}
	for _, tenant := range []model.TenantName{"blue", "default"} {
		b.selectAll(tenant, 1, 0)
		if err := attachTo(string(tenant), "c-"+string(tenant)); err != nil {
			t.Fatal(err)
		}
	}
	drv.mu.Lock()
	drv.gate = make(chan struct{})
	drv.mu.Unlock()
	b.selectAll("blue", 8, 1)
	<-drv.begun
	// While it is under way both change again, and a container starts in each tenant.
	b.selectAll("blue", 8, 2)
	b.selectAll("default", 2, 3)
	_, before := drv.given("default")
	done := make(chan error, 2)
	start := func(tenant model.TenantName, rules int, seed byte) {
		err := attachTo(string(tenant), "c2-"+string(tenant))
		given, _ := drv.given(tenant)
		for _, of := range given {
			if of.Len() != rules {
				err = errors.Join(err, fmt.Errorf("%s: a container starts beside %d rules, want %d", tenant, of.Len(), rules))
			}
			for _, r := range of.All() {
				if is := r.CIDRs[0].Prefix.Addr().As4()[0]; is != 20+seed {
					err = errors.Join(err, fmt.Errorf("%s: a container starts beside a rule of change %d, want %d", tenant, is-20, seed))
				}
			}
		}
		done <- err
	}
	go start("blue", 8, 2)
	go start("default", 2, 3)
	b.eventually("both are known", func() error {
		if n := len(b.endpoints()); n != 4 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
	close(drv.gate)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	drv.mu.Lock()
	if len(drv.weights) <= before || drv.weights[before] > statemirror.PaceEntries {
		t.Errorf("passes change %v entries; want that the one after %d has no big change", drv.weights, before)
	}
	drv.mu.Unlock()
	b.eventually("nothing waits", func() error {
		if s, ok := b.agent.Observer.State().Problems["policies that wait"]; ok {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
}
