package tables

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// What a host reads of a tenant, by why the tenant concerns it.

// HostRows is how much of a tenant a host reads.
type HostRows int

// From least to most.
const (
	NoRows      HostRows = iota
	NetworkRows          // routes that a host learns must lead no network away
	PeerRows             // its containers are reached from here: all but what its policies say
	AllRows              // it has containers here
)

// HostRowsOf returns how much a host reads of a tenant: row is the tenant's, if that is known,
// serves whether services of Kubernetes are on its networks, speaks whether the host has BGP
// settings, and isHere whether it has endpoints of a tenant.
func HostRowsOf(t model.TenantName, row model.Tenant, known, serves, speaks bool, isHere func(model.TenantName) bool) HostRows {
	switch {
	case isHere(t):
		return AllRows
	case t == model.DefaultTenant, serves: // every host leads to its services
		return PeerRows
	case !known:
		return NoRows
	case slices.ContainsFunc(row.Shared, func(k model.NetworkKey) bool { return isHere(k.Tenant) }),
		slices.ContainsFunc(row.Clients, isHere):
		return PeerRows
	case speaks:
		return NetworkRows
	}
	return NoRows
}

// hostKinds are the kinds of a tenant's rows that hosts read, by who reads them.
var hostKinds = map[string]HostRows{
	"networks": NetworkRows, "trials": NetworkRows,
	"endpoints": PeerRows, "groups": PeerRows, "identities": PeerRows, "netprofiles": PeerRows, "services": PeerRows,
	"policies": AllRows, "replacements": AllRows, "rules": AllRows, "staged": AllRows,
}

// globalKinds are the kinds of rows outside of tenants that hosts read.
var globalKinds = []string{"absences", "bgp", "clusterservices", "config", "drains", "hosts", "namespaces", "nodes", "serviceslices", "tenants", "trials"}

// TenantOfPrefix returns the tenant that all rows under a prefix are of; false when they may
// be of several, or of none.
func TenantOfPrefix(prefix string) (model.TenantName, bool) {
	rest, is := strings.CutPrefix(prefix, tenantsPrefix)
	segment, _, whole := strings.Cut(rest, "/")
	if !is || !whole {
		return "", false
	}
	name, ok := store.ParseSegment(segment)
	return model.TenantName(name), ok
}

// KindOfRow returns the kind of a tenant's row, as in "groups"; "" = it is no tenant's.
func KindOfRow(key string) string {
	rest, is := strings.CutPrefix(key, tenantsPrefix)
	if !is {
		return ""
	}
	_, rest, _ = strings.Cut(rest, "/")
	kind, _, _ := strings.Cut(rest, "/")
	return kind
}

// Shows reports whether a host that reads so much of a tenant reads one of its rows.
func (r HostRows) Shows(key string) bool {
	least, known := hostKinds[KindOfRow(key)]
	return known && r >= least
}

// ShowGlobal returns a row outside of tenants as a host reads it; false = it does not.
// Passwords of other hosts' BGP sessions are blanked.
func ShowGlobal(host model.HostName, kv store.KV) (store.KV, bool) {
	rest, is := strings.CutPrefix(kv.Key, GlobalPrefix)
	kind, _, _ := strings.Cut(rest, "/")
	if !is || !slices.Contains(globalKinds, kind) || kv.Key == AciGws.Key(AciGwKey{}) {
		return kv, false
	}
	if kind == "bgp" && kv.Exists() && kv.Key != Bgps.Key(BgpKey{host}) {
		kv.Value = withoutPassword(kv.Value)
	}
	return kv, true
}

// withoutPassword returns BGP settings without the password, and without fields that this
// program does not know: they may be secrets too.
func withoutPassword(row []byte) []byte {
	b, version, err := store.DecodeRecord[model.Bgp](row)
	if err == nil {
		b.Password = ""
		if row, err = store.EncodeRecord(version, b); err == nil {
			return row
		}
	}
	return json.RawMessage("{}") // unreadable, as it was
}
