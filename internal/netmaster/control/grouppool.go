package control

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// allocatePool keeps a group's pool for the group: it must fit the network, and
// neither another pool nor anybody's address may lie in it.
func (ts *Tenants) allocatePool(tx store.Tx, n model.Network, g model.Group) error {
	if !g.Pool.IsValid() {
		return nil
	}
	if err := n.CheckPool(g.Pool); err != nil {
		return err
	}
	row, err := tables.GroupPools.Find(tx, tables.PoolsKey{Network: n.Key})
	if err != nil {
		return err
	}
	pools := tables.Pools{Network: n.Key, Groups: map[model.GroupName]model.AddrRange{g.Key.Name: g.Pool}}
	for name, pool := range row.Value.Groups {
		if !pool.Last.Less(g.Pool.First) && !g.Pool.Last.Less(pool.First) {
			return model.Errorf(model.ErrConflict, "ipPool %q: overlaps %s of endpoint group %q", g.Pool, pool, name)
		}
		pools.Groups[name] = pool
	}
	// Every transaction that takes an address has the row of pools in its read set; the
	// ones that took an address before are visible here.
	scope := tables.AddressesOf(n.Key)
	if err := tx.Observe(scope); err != nil {
		return err
	}
	kvs, err := tx.Range(scope+commonPrefix(tables.AddrName(g.Pool.First), tables.AddrName(g.Pool.Last)), 0)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		a, err := tables.Addresses.Decode(kv)
		if err != nil {
			return err
		}
		if g.Pool.Contains(a.Value.Addr) && !ts.addressView.expired(a.Value) {
			return model.Errorf(model.ErrConflict, "ipPool %q: %s", g.Pool, ownerText(a.Value))
		}
	}
	return tables.GroupPools.Put(tx, pools)
}

func commonPrefix(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return a[:i]
}

func freePool(tx store.Tx, g model.Group) error {
	k := tables.PoolsKey{Network: g.NetworkKey()}
	row, err := tables.GroupPools.Find(tx, k)
	if err != nil {
		return err
	}
	left := tables.Pools{Network: k.Network, Groups: map[model.GroupName]model.AddrRange{}}
	for name, pool := range row.Value.Groups {
		if name != g.Key.Name {
			left.Groups[name] = pool
		}
	}
	if len(left.Groups) == 0 {
		tables.GroupPools.Delete(tx, k)
		return nil
	}
	return tables.GroupPools.Put(tx, left)
}

// ownerText says who has an address.
func ownerText(a tables.Address) string {
	switch {
	case a.Service != "":
		return fmt.Sprintf("%s is the address of load-balanced service %q", a.Addr, a.Service)
	case a.Reservation == nil:
		return fmt.Sprintf("%s is used by endpoint %q", a.Addr, a.Endpoint)
	}
	by := strings.TrimSpace(strings.Join([]string{string(a.Reservation.Host), a.Reservation.Requester}, " "))
	if by != "" {
		by = " for " + by
	}
	return fmt.Sprintf("%s is reserved%s", a.Addr, by)
}

// inOtherPool returns the group other than g whose pool holds an address.
func inOtherPool(pools map[model.GroupName]model.AddrRange, g model.GroupName, a netip.Addr) (model.GroupName, bool) {
	for name, pool := range pools {
		if name != g && pool.Contains(a) {
			return name, true
		}
	}
	return "", false
}
