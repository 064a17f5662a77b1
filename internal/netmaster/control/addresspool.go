package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PoolRequest is what a service asks of the load balancers' pool.
type PoolRequest struct {
	Service model.ClusterServiceKey
	Pool    model.AddressPool
	V4, V6  bool       // the families of which it is to have an address
	Addr    netip.Addr // that it asks for; zero = any
}

// maxPoolSearch bounds the search for a free address. A search goes on behind where
// the one before ended.
const maxPoolSearch = 1 << 16

// Balance gives a service addresses of the load balancers' pool, one of each wanted family
// that the pool has, and takes unwanted ones back. The
// service keeps an address as long as it lies in the pool, belongs to no other service, and
// is the one that it asks for. The error for an unavailable address is model.ErrConflict or
// ErrExhausted; the other addresses are given all the same.
func (ks *Kubernetes) Balance(ctx context.Context, l Leader, w PoolRequest) ([]netip.Addr, error) {
	var out []netip.Addr
	var refused error
	_, err := ks.commits.update(ctx, l.Actor(), fmt.Sprintf("give service %s addresses of the pool", w.Service), func(tx store.Tx) error {
		out, refused = nil, nil
		had := ks.ownerView.BalancedAddrs(w.Service)
		for _, v6 := range []bool{false, true} {
			addr, err := ks.balance(tx, w, v6, had)
			switch {
			case errors.Is(err, model.ErrConflict) || errors.Is(err, model.ErrExhausted):
				refused = errors.Join(refused, err)
			case err != nil:
				return err
			case addr.IsValid():
				out = append(out, addr)
			}
		}
		for _, a := range had {
			if !slices.Contains(out, a) {
				tables.BalancedAddrs.Delete(tx, tables.BalancedKey{Addr: a})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, refused
}

// balance returns the address of a family that a service is to have; zero = none.
func (ks *Kubernetes) balance(tx store.Tx, w PoolRequest, v6 bool, had []netip.Addr) (netip.Addr, error) {
	wished := w.Addr.IsValid() && w.Addr.Is6() == v6
	if v6 && !w.V6 || !v6 && !w.V4 || !wished && !w.Pool.Has(v6) {
		return netip.Addr{}, nil
	}
	if wished {
		return w.Addr, ks.takeBalanced(tx, w, w.Addr)
	}
	for _, a := range had {
		if a.Is6() != v6 {
			continue
		}
		err := ks.takeBalanced(tx, w, a)
		if err == nil || !errors.Is(err, model.ErrConflict) {
			return a, err
		}
	}
	looked := 0
	for a := range w.Pool.From(ks.ownerView.lastBalanced(v6), v6) {
		if looked++; looked > maxPoolSearch {
			break
		}
		if ks.ownerView.tryBalanced(a) {
			continue
		}
		err := ks.takeBalanced(tx, w, a)
		if err == nil || !errors.Is(err, model.ErrConflict) {
			return a, err
		}
	}
	name := "IPv4"
	if v6 {
		name = "IPv6"
	}
	return netip.Addr{}, model.Errorf(model.ErrExhausted, "the load balancers' pool has no free %s address", name)
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// takeBalanced gives a service an address, unless it has it; model.ErrConflict where
// it cannot have it.
func (ks *Kubernetes) takeBalanced(tx store.Tx, w PoolRequest, a netip.Addr) error {
	if !w.Pool.Contains(a) {
		return model.Errorf(model.ErrConflict, "%s is not in the load balancers' pool", a)
	}
	for _, whose := range []string{ks.ownerView.DescribeOwner(a), ks.ownerView.DescribeServiceOwner(a), ks.kubernetesView.describeFrontend(a, w.Service)} {
		if whose != "" {
			return model.Errorf(model.ErrConflict, "%s %s", a, whose)
		}
	}
	row, err := tables.BalancedAddrs.Find(tx, tables.BalancedKey{Addr: a})
	switch {
	case err != nil:
		return err
	case !row.Exists():
		return tables.BalancedAddrs.Create(tx, tables.Balanced{Addr: a, Service: w.Service})
	case row.Value.Service != w.Service:
		return model.Errorf(model.ErrConflict, "%s belongs to service %s", a, row.Value.Service)
	}
	return nil
}
