package control

import (
	"context"
	"errors"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Ownership deletes and releases what belongs to objects of Kubernetes or to sets of
// applied documents. It has no state: an object's record says whose it is.
type Ownership struct {
	commits  *Committer
	networks *Networks
}

// Whose an object is, its record says (Object): an object of Kubernetes, or the users.
// Each transaction that changes or deletes it has read the record.

// ownedPart is the part of a change, or of a deletion, that can belong to Kubernetes.
type ownedPart struct {
	model.Owned
	// object reads, into the read set, which object of Kubernetes has it; there tells
	// whether it exists. give writes that.
	object func(store.Tx) (object string, there bool, err error)
	give   func(tx store.Tx, object string) error
}

func ownedRow[K comparable, V any](kind string, table *tables.Table[K, V], k K, object func(*V) *string) *ownedPart {
	return &ownedPart{
		Owned: model.Owned{Kind: kind, Key: table.Show(k)},
		object: func(tx store.Tx) (string, bool, error) {
			row, err := table.Find(tx, k)
			return *object(&row.Value), row.Exists(), err
		},
		give: func(tx store.Tx, to string) error {
			v, err := table.Get(tx, k)
			if err != nil || *object(&v) == to {
				return err
			}
			*object(&v) = to
			return table.Put(tx, v)
		},
	}
}

func ownTenant(k model.TenantName) *ownedPart {
	return ownedRow("tenant", tables.Tenants, k, func(t *model.Tenant) *string { return &t.Object })
}

func ownNetwork(k model.NetworkKey) *ownedPart {
	return ownedRow("network", tables.Networks, k, func(n *model.Network) *string { return &n.Object })
}

func ownGroup(k model.GroupKey) *ownedPart {
	return ownedRow("endpointGroup", tables.Groups, k, func(g *model.Group) *string { return &g.Object })
}

func ownPolicy(k model.PolicyKey) *ownedPart {
	return ownedRow("policy", tables.Policies, k, func(p *model.Policy) *string { return &p.Object })
}

func ownNetProfile(k model.NetProfileKey) *ownedPart {
	return ownedRow("netprofile", tables.NetProfiles, k, func(p *model.NetProfile) *string { return &p.Object })
}

// ownedBy finds what can belong to Kubernetes. The error is of kind model.ErrInvalid.
func ownedBy(o model.Owned) (*ownedPart, error) {
	switch o.Kind {
	case "tenant":
		return parsedOwned(o.Key, model.ParseTenantName, ownTenant)
	case "network":
		return parsedOwned(o.Key, model.ParseNetworkKey, ownNetwork)
	case "endpointGroup":
		return parsedOwned(o.Key, model.ParseGroupKey, ownGroup)
	case "policy":
		return parsedOwned(o.Key, model.ParsePolicyKey, ownPolicy)
	case "netprofile":
		return parsedOwned(o.Key, model.ParseNetProfileKey, ownNetProfile)
	}
	return nil, model.InvalidField("kind", o.Kind, "must be one of tenant, network, endpointGroup, policy, netprofile: nothing else belongs to an object of Kubernetes")
}

func parsedOwned[K any](key string, parse func(string) (K, error), own func(K) *ownedPart) (*ownedPart, error) {
	k, err := parse(key)
	if err != nil {
		return nil, err
	}
	return own(k), nil
}

// Ownerships returns what belongs to objects of Kubernetes.
func (v *View) Ownerships() (all []model.Ownership) {
	add := func(kind, key, object string) {
		if object != "" {
			all = append(all, model.Ownership{Owned: model.Owned{Kind: kind, Key: key}, Object: object})
		}
	}
	for _, t := range v.Tenants.List() {
		add("tenant", string(t.Name), t.Object)
	}
	for _, n := range v.Networks.List("") {
		add("network", n.Key.String(), n.Object)
	}
	for _, g := range v.Groups.List("") {
		add("endpointGroup", g.Key.String(), g.Object)
	}
	for _, p := range v.Policies.List("") {
		add("policy", p.Key.String(), p.Object)
	}
	for _, p := range NetProfiles(v, "") {
		add("netprofile", p.Key.String(), p.Object)
	}
	return all
}

// of returns the part of the change that can belong to Kubernetes.
func (ch Change) of(o *ownedPart) Change {
	ch.owned = o
	if ch.deferred != nil {
		ch.deferred.owned = o
	}
	return ch
}

// do puts the change's object, if it is its author's to change.
func (ch *Change) do(ctx context.Context, tx store.Tx, cl *allocator) error {
	if ch.owned == nil {
		return ch.put(ctx, tx, cl)
	}
	object, there, err := ch.owned.object(tx)
	if err != nil {
		return err
	}
	if cl.actor.object != "" {
		if err := cl.actor.mayTake(ch.owned.Owned, object, there); err != nil {
			return err
		}
		if err := ch.put(ctx, tx, cl); err != nil {
			return err
		}
		return ch.owned.give(tx, cl.actor.object)
	}
	if object == "" {
		return ch.put(ctx, tx, cl)
	}
	// A request for what exists already succeeds: an export can be applied.
	was, err := tx.Peek(ch.key)
	if err != nil {
		return err
	}
	if err := ch.put(ctx, tx, cl); err != nil {
		if slices.ContainsFunc(refusals, func(kind error) bool { return errors.Is(err, kind) }) {
			return checkUserOwned(ch.owned.Owned, object)
		}
		return err
	}
	now, err := tx.Peek(ch.key)
	if err == nil && (now.Mod != was.Mod || now.Mod == store.Pending) {
		err = checkUserOwned(ch.owned.Owned, object)
	}
	return err
}

// mayTake refuses to make the actor's what is another one's.
func (a Actor) mayTake(o model.Owned, object string, there bool) error {
	switch {
	case object != "" && object != a.object:
		return model.Errorf(model.ErrConflict, "%s already belongs to %s", o, model.Ownership{Owned: o, Object: object}.Resource())
	case object == "" && there && !a.adopts:
		return model.Errorf(model.ErrConflict, "%s belongs to users, who made it by REST or netctl", o)
	}
	return nil
}

// checkUserOwned refuses that users change what an object of Kubernetes owns.
func checkUserOwned(o model.Owned, object string) error {
	return model.Errorf(model.ErrConflict, "%s belongs to Kubernetes: change or delete it there, as %s, or give it to users first ('netctl release %s %s')",
		o, model.Ownership{Owned: o, Object: object}.Resource(), o.Kind, o.Key)
}

// mayDelete refuses to delete what is another one's.
func (a Actor) mayDelete(tx store.Tx, o *ownedPart) error {
	object, _, err := o.object(tx)
	switch {
	case err != nil || object == a.object:
		return err
	case a.object == "":
		return checkUserOwned(o.Owned, object)
	}
	return model.Errorf(model.ErrConflict, "%s does not belong to %s", o.Owned, model.Ownership{Owned: o.Owned, Object: a.object}.Resource())
}

// ReplaceContivPolicy creates a Contiv policy with its rules, or makes one and all of
// its rules what they are here, at once, as ReplaceNetworkPolicy does.
func (ps *Policies) ReplaceContivPolicy(valid model.Valid[model.PolicyWithRules]) Change {
	n := valid.Value().General()
	k := n.Policy.Key
	ch := changeOf(rankMember, tables.Policies, k, valid, func(_ context.Context, tx store.Tx, cl *allocator) error {
		return ps.replacePolicy(tx, cl, n)
	})
	inContivWords[model.Policy, model.ContivPolicy](&ch)
	ch.rules, ch.replaces = n.Rules, &k
	ch.alone = func(ctx context.Context, u *usecase) (any, error) {
		header, err := model.Check(valid.Value().Policy)
		if err != nil {
			return nil, err
		}
		if _, err := u.put(ctx, ps.ChangePolicy(header)); err != nil {
			return nil, err
		}
		return valid.Value().Policy, ps.replaceStaged(ctx, u, n)
	}
	return ch.of(ownPolicy(k))
}

// DeleteOwned deletes what the actor's object of Kubernetes owns, by the kind's
// use-case. The default tenant, which is always there, is the users' again.
func (os *Ownership) DeleteOwned(ctx context.Context, a Actor, o model.Owned) (store.Revision, error) {
	d, err := os.deletionOf(o)
	switch {
	case err != nil:
		return 0, err
	case o == model.Owned{Kind: "tenant", Key: string(model.DefaultTenant)}:
		return os.Release(ctx, a, o)
	}
	return os.commits.Delete(ctx, a, d)
}

func (os *Ownership) deletionOf(o model.Owned) (Deletion, error) {
	switch o.Kind {
	case "tenant":
		return DeleteTenant(model.TenantName(o.Key)), nil
	case "network":
		return deleteParsed(o.Key, model.ParseNetworkKey, os.networks.DeleteNetwork)
	case "endpointGroup":
		return deleteParsed(o.Key, model.ParseGroupKey, DeleteGroup)
	case "policy":
		return deleteParsed(o.Key, model.ParsePolicyKey, DeletePolicy)
	case "netprofile":
		return deleteParsed(o.Key, model.ParseNetProfileKey, DeleteNetProfile)
	}
	return Deletion{}, model.Errorf(model.ErrInvalid, "nothing of kind %q belongs to Kubernetes", o.Kind)
}

func deleteParsed[K any](key string, parse func(string) (K, error), deletion func(K) Deletion) (Deletion, error) {
	k, err := parse(key)
	if err != nil {
		return Deletion{}, err
	}
	return deletion(k), nil
}

// Release gives to users what belongs to an object of Kubernetes: to the actor's, or,
// where a user asks, to any. What belongs to users already is model.ErrConflict.
func (os *Ownership) Release(ctx context.Context, a Actor, o model.Owned) (store.Revision, error) {
	own, err := ownedBy(o)
	if err != nil {
		return 0, err
	}
	return os.commits.update(ctx, a, "release "+o.String(), func(tx store.Tx) error {
		object, there, err := own.object(tx)
		switch {
		case err != nil:
			return err
		case !there:
			return model.Errorf(model.ErrNotFound, "it does not exist")
		case object == "":
			return model.Errorf(model.ErrConflict, "it already belongs to users")
		case a.object != "" && object != a.object:
			return model.Errorf(model.ErrConflict, "it belongs to %s", model.Ownership{Owned: o, Object: object}.Resource())
		}
		return own.give(tx, "")
	})
}

// OwnerOf tells which object of Kubernetes has something; "" = its users have. there
// tells whether it exists.
func (v *View) OwnerOf(o model.Owned) (object string, there bool) {
	switch o.Kind {
	case "tenant":
		t, there := v.Tenants.Get(model.TenantName(o.Key))
		return t.Object, there
	case "network":
		n, there := parsedFind(o.Key, model.ParseNetworkKey, v.Networks.Get)
		return n.Object, there
	case "endpointGroup":
		g, there := parsedFind(o.Key, model.ParseGroupKey, v.Groups.Get)
		return g.Object, there
	case "policy":
		p, there := parsedFind(o.Key, model.ParsePolicyKey, v.Policies.Get)
		return p.Object, there
	case "netprofile":
		p, there := parsedFind(o.Key, model.ParseNetProfileKey, netProfileRows(v).find)
		return p.Object, there
	}
	return "", false
}

func parsedFind[K, V any](key string, parse func(string) (K, error), find func(K) (V, bool)) (v V, there bool) {
	k, err := parse(key)
	if err != nil {
		return v, false
	}
	return find(k)
}
