package tables

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Pending is a change that waits to be confirmed. What it changes is as it was, in
// its table, until a confirmation commits the change like any other; that, its being
// taken back and the end of its time all take this row away, with its Trials.
type Pending struct {
	ID string `json:"id"`
	// Began is when it was written, by the clock of the netmaster that did.
	Began time.Time `json:"began"`
	// Within is how long it may take to be confirmed.
	Within time.Duration `json:"within"` // ns
	// Objects are what was asked for, as in a request to apply.
	Objects []json.RawMessage `json:"objects"`
	// Locks are keys, and with "/" at the end prefixes, that other changes must not write.
	Locks []string `json:"locks"`
	// Tenants are the tenants of its Trials; "" = objects without a tenant.
	Tenants []model.TenantName `json:"tenants"`
}

// PendingKey is the id of a Pending.
type PendingKey string

// PendingScope holds what waits to be confirmed.
const PendingScope = AllocPrefix + "pending/"

// Pendings holds what waits to be confirmed.
var Pendings = declare(TableSpec[PendingKey, Pending]{
	Noun: "pending change", Version: 1,
	Path:  "state/alloc/pending/*",
	Parse: func(n []string) (PendingKey, bool) { return PendingKey(n[0]), true },
	KeyOf: func(p Pending) PendingKey { return PendingKey(p.ID) },
	Scope: func(PendingKey) string { return PendingScope },
	Name:  func(k PendingKey) string { return store.Segment(string(k)) },
})

// Locked reports whether a transaction that writes, or with "/" at the end deletes all
// below, a key stands in the way of the change.
func (p Pending) Locked(key string) bool {
	for _, l := range p.Locks {
		if key == l || strings.HasSuffix(l, "/") && strings.HasPrefix(key, l) || strings.HasSuffix(key, "/") && strings.HasPrefix(l, key) {
			return true
		}
	}
	return false
}

// Trial is what hosts have of a Pending: rows that they take, while its time lasts, in
// place of those in the tables. It lies where hosts find the rows themselves, one for
// each tenant and one for what is no tenant's.
type Trial struct {
	ID     string           `json:"id"`
	Tenant model.TenantName `json:"tenant,omitempty"`
	Within time.Duration    `json:"within"` // ns, from when the host sees it
	Rows   []TrialRow       `json:"rows"`
}

// TrialRow is the unconfirmed row at a key.
type TrialRow struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value,omitempty"` // as in the store; empty = there is none
}

// Change returns the row in typed form.
func (r TrialRow) Change() (Change, error) {
	ev := store.Event{KV: store.KV{Key: r.Key}}
	if len(r.Value) > 0 {
		ev.KV.Value, ev.KV.Create, ev.KV.Mod = r.Value, store.Pending, store.Pending
	}
	return Decode(ev)
}

// TrialKey is the key of a Trial.
type TrialKey struct {
	Tenant model.TenantName // "" = of what is no tenant's
	ID     string
}

func keyOfTrial(t Trial) TrialKey { return TrialKey{t.Tenant, t.ID} }

func nameOfTrial(k TrialKey) string { return store.Segment(k.ID) }

// TrialsScope holds the unconfirmed changes of what is no tenant's.
const TrialsScope = GlobalPrefix + "trials/"

var (
	clusterTrials = declare(TableSpec[TrialKey, Trial]{
		Noun: "unconfirmed change", Version: 1, Unlisted: true,
		Path:  "state/global/trials/*",
		Parse: func(n []string) (TrialKey, bool) { return TrialKey{ID: n[0]}, true },
		KeyOf: keyOfTrial,
		Scope: func(TrialKey) string { return TrialsScope },
		Name:  nameOfTrial,
	})
	tenantTrials = declare(TableSpec[TrialKey, Trial]{
		Noun: "unconfirmed change of a tenant", Version: 1, Unlisted: true,
		Path: "state/tenant/*/trials/*",
		Parse: func(n []string) (TrialKey, bool) {
			return TrialKey{model.TenantName(n[0]), n[1]}, n[0] != ""
		},
		KeyOf: keyOfTrial,
		Scope: func(k TrialKey) string { return TenantPrefix(k.Tenant) + "trials/" },
		Name:  nameOfTrial,
	})
)

// TrialsOf returns the table that has a tenant's Trials; "" = of what is no tenant's.
func TrialsOf(t model.TenantName) *Table[TrialKey, Trial] {
	if t == "" {
		return clusterTrials
	}
	return tenantTrials
}

// LockKeys returns the key, or for a policy and its rules the keys and prefixes, that a
// change of a row locks; none for rows that no unconfirmed change may change.
func LockKeys(key any) []string {
	switch k := key.(type) {
	case GlobalKey:
		return []string{Globals.Key(k)}
	case model.NetworkKey:
		return []string{Networks.Key(k)}
	case model.GroupKey:
		return []string{Groups.Key(k)}
	case model.RuleKey:
		return LockKeys(k.PolicyKey())
	case model.PolicyKey:
		return []string{Policies.Key(k), RulesOf(k), Replacements.Key(ReplacementKey(k)), StagedOf(k)}
	}
	return nil
}

// lockable are the words in keys of what can be locked.
var lockable = []string{"/config/global", "/networks/", "/groups/", "/policies/", "/rules/", "/replacements/", "/staged/"}

// Lockable reports whether a key, or with "/" at the end one below it, may be locked.
func Lockable(key string) bool {
	if !strings.HasPrefix(key, tenantsPrefix) {
		return key == Globals.Key(GlobalKey{})
	}
	if strings.HasSuffix(key, "/") {
		return true
	}
	for _, word := range lockable {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}
