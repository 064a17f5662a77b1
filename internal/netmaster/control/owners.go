package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Everything that is allocated has an owner, an object that says so itself: the rows
// under tables.AllocPrefix and the records of identities follow from the objects
// (expectedRows). The use-cases write both in one transaction, so that at every revision of
// the store the one fits the other. What does not is damage: of a restored part of a
// backup, of a hand in the store, of a fault of this program's.

// The kinds of OwnerFinding.
const (
	NoOwner       = "owned-by-nobody" // an allocation whose owner is not there, or does not have it
	Leftover      = "leftover"        // the same, left behind on purpose by a deletion: it counts as gone
	NotAllocated  = "not-allocated"   // an owner has what is not allocated, or is another one's
	MissingObject = "lacks-object"    // an object names one that is not there
	Unreadable    = "unreadable"      // a row that cannot be read
	NewerRecord   = "newer-record"    // a row of a newer version than this program writes: it can be read only
	UnknownRecord = "unknown-record"  // a row of no table that this program knows
)

// OwnerFinding is what does not fit in the store.
type OwnerFinding struct {
	Kind   string
	Object string // whose: for people
	Text   string // a sentence
	Repair bool   // RepairOwners puts it right, or tries to

	at           ownedAt
	mod          store.Revision // of the row; 0 = there is none
	claimedOwner string         // by the entry of the row; "" = there is none
	owner        string         // the key of the owner's row, of NotAllocated
}

// ledger is the store's state at one revision.
type ledger struct {
	rows   map[string]tables.Change // by key
	wanted map[ownedAt][]claimant
	bad    []OwnerFinding
}

// claimant is an object that wants something.
type claimant struct {
	expectedRow
	key, object string // of its row
}

// readLedger reads all of the store's state at one revision.
func (re *Repair) readLedger(ctx context.Context) (*ledger, error) {
	kvs, _, err := re.commits.store.Range(ctx, tables.StatePrefix)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	l := &ledger{rows: make(map[string]tables.Change, len(kvs)), wanted: map[ownedAt][]claimant{}}
	newer := map[string][]string{}
	for _, kv := range kvs {
		if kv.Key == store.CommitKey {
			continue
		}
		rec, ch, err := tables.Look(kv)
		name := strings.TrimPrefix(kv.Key, store.Root)
		switch {
		case err != nil:
			l.bad = append(l.bad, OwnerFinding{Kind: Unreadable, Object: name, Text: fmt.Sprintf("the %s there cannot be read, so that it counts as missing: %v", rec.Noun, trimKey(err, kv.Key))})
			continue
		case rec.Noun == "" || ch.Key == nil:
			l.bad = append(l.bad, OwnerFinding{Kind: UnknownRecord, Object: name, Text: "this netmaster cannot read the record: a newer one, or another program, has written it"})
			continue
		case rec.Version > rec.Newest:
			newer[rec.Noun] = append(newer[rec.Noun], name)
		}
		l.rows[kv.Key] = ch
	}
	for _, noun := range slices.Sorted(maps.Keys(newer)) {
		l.bad = append(l.bad, OwnerFinding{Kind: NewerRecord, Object: noun, Text: fmt.Sprintf("%d records (for one %s) are of a newer version than this netmaster writes: it reads them, and refuses to change them", len(newer[noun]), newer[noun][0])})
	}
	for key, ch := range l.rows {
		for _, w := range expectedRows(ch.Value) {
			l.wanted[w.at()] = append(l.wanted[w.at()], claimant{w, key, describe(ch)})
		}
	}
	l.plan()
	return l, nil
}

func trimKey(err error, key string) string {
	return strings.ReplaceAll(err.Error(), key, strings.TrimPrefix(key, store.Root))
}

// plan adds what tenants that share networks want of the plan of addresses.
func (l *ledger) plan() {
	for key, ch := range l.rows {
		n, ok := ch.Value.(model.Network)
		if !ok {
			continue
		}
		t, _ := l.rows[tables.Tenants.Key(n.Key.Tenant)].Value.(model.Tenant)
		if !t.Shares() {
			continue
		}
		for _, p := range subnetsOf(n) {
			w := wantPlanned(n, p)
			l.wanted[w.at()] = append(l.wanted[w.at()], claimant{w, key, describe(ch)})
		}
	}
}

// wantPlanned is the entry of a network of a tenant that shares networks in the plan of
// all such.
func wantPlanned(n model.Network, p netip.Prefix) expectedRow {
	return expectedRow{
		key: tables.Plans.Key(tables.PlanKey{}), entry: p.String(), what: "subnet " + p.String() + " in the plan of shared networks",
		have: func(value any) bool {
			plan, ok := value.(tables.Plan)
			return ok && plan.Subnets[p.String()] == n.Key
		},
		put: func(_ context.Context, tx store.Tx, _ *allocator) error { return planNetwork(Scope{}, tx, n) },
	}
}

// describe names an object as people write it.
func describe(ch tables.Change) string {
	switch o := ch.Value.(type) {
	case model.Tenant:
		return "tenant " + string(o.Name)
	case model.Network:
		return "network " + o.Key.String()
	case model.Group:
		return "endpoint group " + o.Key.String()
	case model.Endpoint:
		return "endpoint " + o.Key.String()
	case model.Service:
		return "service " + o.Key.String()
	case model.Policy:
		return "policy " + o.Key.String()
	case model.PolicyRule:
		return "rule " + o.Key.String()
	case tables.StagedRule:
		return "staged rule " + o.Key.String()
	case model.AppProfile:
		return "app profile " + o.Key.String()
	case model.IdentityRecord:
		return fmt.Sprintf("identity %d of network %s", o.ID, o.Network)
	}
	return fmt.Sprintf("%T", ch.Value)
}

// Owners checks the whole store, at one revision, for allocations without an owner, for
// owners without their allocations, and for unreadable records. The result is ordered, and
// empty when all is well.
func (re *Repair) Owners(ctx context.Context) ([]OwnerFinding, error) {
	if err := re.commits.await(ctx); err != nil {
		return nil, err
	}
	l, err := re.readLedger(ctx)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(l.bad)
	for at, list := range l.wanted {
		row, there := l.rows[at.key]
		for _, w := range list {
			if there && w.have(row.Value) {
				continue
			}
			out = append(out, l.missing(w, row, there))
		}
	}
	for key, ch := range l.rows {
		for _, a := range allocationsIn(ch) {
			if len(l.wanted[ownedAt{key, a.entry}]) == 0 {
				kind := NoOwner
				if ref, ok := ch.Value.(tables.Reference); ok && ref.Kind == ruleReference {
					kind = Leftover
				}
				out = append(out, OwnerFinding{
					Kind: kind, Object: a.what, Repair: true, at: ownedAt{key, a.entry}, mod: ch.Mod, claimedOwner: a.said,
					Text: a.what + " is allocated without an owner: " + a.said,
				})
			}
		}
		for _, k := range slices.Sorted(maps.Keys(requiredObjects(ch.Value))) {
			if _, there := l.rows[k]; !there {
				out = append(out, OwnerFinding{Kind: MissingObject, Object: describe(ch), Text: fmt.Sprintf("%s names %s, which does not exist", describe(ch), requiredObjects(ch.Value)[k])})
			}
		}
	}
	slices.SortFunc(out, func(a, b OwnerFinding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	return out, nil
}

// missing says that an object has what the row does not give it.
func (l *ledger) missing(w claimant, row tables.Change, there bool) OwnerFinding {
	f := OwnerFinding{Kind: NotAllocated, Object: w.object, Repair: true, at: w.at(), mod: row.Mod, owner: w.key, claimedOwner: ownerIn(row, w.entry)}
	f.Text = fmt.Sprintf("%s has %s, which is not allocated: it may be given to another one", w.object, w.what)
	if !there {
		return f
	}
	for _, other := range l.wanted[w.at()] {
		if other.key != w.key && other.have(row.Value) {
			f.Text = fmt.Sprintf("%s and %s both have %s", w.object, other.object, w.what)
			f.Repair = false
			return f
		}
	}
	if f.claimedOwner != "" {
		f.Text = fmt.Sprintf("%s has %s, which is allocated to another one: %s", w.object, w.what, f.claimedOwner)
	}
	return f
}

// ownerIn is what a row says of whose an entry is; "" = it has no such entry.
func ownerIn(row tables.Change, entry string) string {
	for _, a := range allocationsIn(row) {
		if a.entry == entry {
			return a.said
		}
	}
	return ""
}

// allocation is a row that exists because an object has it, or an entry of one.
type allocation struct {
	entry, what string
	said        string // whose it is, in the row's own words
}

// allocationsIn lists a row's allocations; none where it is no row of allocations, or one
// that needs no owner.
func allocationsIn(ch tables.Change) (out []allocation) {
	one := func(what, said string) []allocation { return []allocation{{what: what, said: said}} }
	switch v := ch.Value.(type) {
	case tables.Address:
		if v.Reservation == nil {
			return one("address "+tables.Addresses.Show(v.AddressKey), ownerText(v))
		}
	case tables.Number:
		return one("number "+tables.Numbers.Show(v.NumberKey), "its row names "+v.Owner)
	case tables.Interned:
		return one(contentName(v.Tenant, v.ID), "the identity has no record")
	case tables.MACOwner:
		return one("MAC "+tables.ChosenMACs.Show(v.MACKey), fmt.Sprintf("its row names endpoint %q", v.Endpoint))
	case tables.Name:
		return one("name "+tables.Names.Show(v.NameKey), "its row says that a "+v.Kind+" has it")
	case tables.Reference:
		w := wantReference(v.Target, v.Kind, v.From)
		return one(w.what, fmt.Sprintf("%s %q does not refer to it", v.Kind, v.From))
	case tables.SubnetBucket:
		for p, n := range v.Subnets {
			out = append(out, allocation{p, fmt.Sprintf("subnet %s of tenant %s", p, v.Tenant), fmt.Sprintf("its row names network %q", n)})
		}
	case tables.Pools:
		for g, r := range v.Groups {
			out = append(out, allocation{string(g), fmt.Sprintf("address pool %s of network %s", r, v.Network), fmt.Sprintf("its row names endpoint group %q", g)})
		}
	case tables.Plan:
		for p, n := range v.Subnets {
			out = append(out, allocation{p, "subnet " + p + " in the plan of shared networks", fmt.Sprintf("its row names network %q", n)})
		}
	}
	return out
}

// tenantOfOwner is the tenant in the owner of an identity's number.
func tenantOfOwner(owner string) model.TenantName {
	t, _, _ := strings.Cut(owner, ":")
	return model.TenantName(t)
}
