package control

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Networks that are shared with other tenants. All tenants that share, as owner or as
// client, have one plan of addresses: a row with the subnets of all of their networks,
// of which no two overlap. So an address says on every host whose it is.

// sharedReference is the kind of the references from tenants to networks of others.
const sharedReference = "tenant"

// maxPlan is how many subnets a plan holds; the row stays well below what the store
// takes.
const maxPlan = 4096

// addressPlan is the row of the plan while a transaction changes it.
type addressPlan struct {
	subnets map[netip.Prefix]model.NetworkKey
}

func readPlan(tx store.Tx) (addressPlan, error) {
	row, err := tables.Plans.Find(tx, tables.PlanKey{})
	p := addressPlan{map[netip.Prefix]model.NetworkKey{}}
	for text, owner := range row.Value.Subnets {
		x, bad := netip.ParsePrefix(text)
		if bad != nil {
			return p, fmt.Errorf("read the plan of shared networks: %w", bad)
		}
		p.subnets[x] = owner
	}
	return p, err
}

func (p addressPlan) write(tx store.Tx) error {
	if len(p.subnets) == 0 {
		tables.Plans.Delete(tx, tables.PlanKey{})
		return nil
	}
	if len(p.subnets) > maxPlan {
		return model.Errorf(model.ErrExhausted, "the tenants that share networks have %d subnets, and can have %d", len(p.subnets), maxPlan)
	}
	row := tables.Plan{Subnets: map[string]model.NetworkKey{}}
	for x, owner := range p.subnets {
		row.Subnets[x.String()] = owner
	}
	return tables.Plans.Put(tx, row)
}

// add takes networks in. It fails with model.ErrConflict, with one overlap by its
// names, as far as the scope shows them, and how many there are; the plan is of no use then.
func (p addressPlan) add(s Scope, nets []model.Network) error {
	var first error
	overlaps := 0
	for _, n := range nets {
		for _, x := range subnetsOf(n) {
			for _, o := range slices.SortedFunc(maps.Keys(p.subnets), netip.Prefix.Compare) {
				if !o.Overlaps(x) || p.subnets[o] == n.Key {
					continue
				}
				overlaps++
				if first == nil {
					first = s.describeCollision("subnet", x, fmt.Sprintf("subnet of network %q overlaps %s of network %q; networks of tenants that share networks must not overlap", n.Key, o, p.subnets[o]))
				}
			}
			p.subnets[x] = n.Key
		}
	}
	if overlaps > 1 {
		return fmt.Errorf("%w (the first of %d overlaps)", first, overlaps)
	}
	return first
}

// remove takes the networks out that owned tells of.
func (p addressPlan) remove(owned func(model.NetworkKey) bool) {
	maps.DeleteFunc(p.subnets, func(_ netip.Prefix, k model.NetworkKey) bool { return owned(k) })
}

// planNetwork enters a new network of a tenant that shares networks into the plan.
func planNetwork(s Scope, tx store.Tx, n model.Network) error {
	p, err := readPlan(tx)
	if err != nil {
		return err
	}
	if err := p.add(s, []model.Network{n}); err != nil {
		return err
	}
	return p.write(tx)
}

// unplanNetwork takes one out again.
func unplanNetwork(tx store.Tx, k model.NetworkKey) error {
	p, err := readPlan(tx)
	if err != nil {
		return err
	}
	p.remove(func(o model.NetworkKey) bool { return o == k })
	return p.write(tx)
}

// setShared makes a tenant reach these networks of others and no more, and writes all
// rows but the tenant's own.
func setShared(tx store.Tx, t *model.Tenant, list []model.NetworkKey) error {
	if slices.Equal(t.Shared, list) {
		return nil
	}
	targets := func(keys []model.NetworkKey) (out []policyTarget) {
		for _, k := range keys {
			x := networkTarget("sharedNetworks", k)
			x.name = k.String()
			out = append(out, x)
		}
		return out
	}
	if err := moveTargets(tx, sharedReference, string(t.Name), targets(t.Shared), targets(list)); err != nil {
		return err
	}
	owns := map[model.TenantName]bool{} // whether the tenant still reaches a network of the owner
	for _, k := range t.Shared {
		owns[k.Tenant] = false
	}
	for _, k := range list {
		owns[k.Tenant] = true
	}
	var join, leave []model.TenantName
	move := func(x model.Tenant, shared bool) {
		switch {
		case x.Shares() && !shared:
			join = append(join, x.Name)
		case !x.Shares() && shared:
			leave = append(leave, x.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(owns)) {
		owner, err := tables.Tenants.Get(tx, name)
		if err != nil {
			return err
		}
		shared := owner.Shares()
		clients := slices.DeleteFunc(slices.Clone(owner.Clients), func(x model.TenantName) bool { return x == t.Name })
		if owns[name] {
			clients = append(clients, t.Name)
			slices.Sort(clients)
		}
		if slices.Equal(clients, owner.Clients) {
			continue
		}
		owner.Clients = clients
		if err := tables.Tenants.Put(tx, owner); err != nil {
			return err
		}
		move(owner, shared)
	}
	shared := t.Shares()
	if t.Shared = list; len(list) == 0 {
		t.Shared = nil
	}
	if move(*t, shared); len(join)+len(leave) == 0 {
		return nil
	}
	return replan(tx, join, leave)
}

// replan brings tenants into the plan, and takes others out.
func replan(tx store.Tx, join, leave []model.TenantName) error {
	p, err := readPlan(tx)
	if err != nil {
		return err
	}
	p.remove(func(k model.NetworkKey) bool { return slices.Contains(leave, k.Tenant) })
	var nets []model.Network
	for _, name := range join {
		of, err := tables.Networks.List(tx, tables.NetworksOf(name))
		if err != nil {
			return err
		}
		nets = append(nets, of...)
	}
	if err := p.add(Scope{}, nets); err != nil {
		return fmt.Errorf("sharedNetworks: %w", err)
	}
	return p.write(tx)
}
