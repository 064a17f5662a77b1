package control

import (
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// AddressView is the View's part with allocated addresses and numbers, and with those that
// use-cases of this process are about to allocate.
type AddressView struct {
	networks *NetworkView
	groups   *GroupView
	settings *SettingsView
	now      func() time.Time

	mu       *sync.RWMutex // the View's
	spaces   map[model.NetworkKey]*space
	pools    map[model.NetworkKey]tables.Pools
	numbers  map[tables.NumberKind]*numbers
	settling []settling
	kept     keepings // lists do not reset it
}

func newAddressView(mu *sync.RWMutex, networks *NetworkView, groups *GroupView, settings *SettingsView) *AddressView {
	began := time.Now()
	av := &AddressView{mu: mu, networks: networks, groups: groups, settings: settings, now: time.Now, kept: newKeepings(0, func() time.Duration { return time.Since(began) })}
	av.reset()
	return av
}

func (av *AddressView) reset() {
	av.pools = map[model.NetworkKey]tables.Pools{}
	av.spaces = map[model.NetworkKey]*space{}
	av.numbers = map[tables.NumberKind]*numbers{}
	for _, kind := range []tables.NumberKind{tables.NumberVLAN, tables.NumberVNI, tables.NumberNetwork, tables.NumberIdentity, tables.NumberRouter} {
		av.numbers[kind] = newNumbers()
	}
}
