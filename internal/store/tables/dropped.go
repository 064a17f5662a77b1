package tables

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Dropped is an object of a kind that former versions kept, and this one does not.
type Dropped struct {
	Noun   string // of its kind
	Tenant model.TenantName
	Name   string
}

func (d Dropped) String() string { return d.Noun + " " + string(d.Tenant) + ":" + d.Name }

// droppedNouns are the kinds' nouns by the segment of their rows' keys, below a tenant.
var droppedNouns = map[string]string{"volumes": "volume", "volumeprofiles": "volume profile"}

// DroppedAt returns the object whose row lies at a key of the store; false = it is the row of
// something else.
func DroppedAt(key string) (Dropped, bool) {
	rest, ok := strings.CutPrefix(key, tenantsPrefix)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return Dropped{}, false
	}
	noun, is := droppedNouns[parts[1]]
	tenant, isTenant := store.ParseSegment(parts[0])
	name, isName := store.ParseSegment(parts[2])
	return Dropped{noun, model.TenantName(tenant), name}, is && isTenant && isName
}
