package control

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

type actsFor struct{}

// ActFor returns a context for use-cases of a host's agent: within their transactions
// an endpoint or a reservation of another host is model.ErrConflict, whoever had it
// when the request was judged.
func ActFor(ctx context.Context, h model.HostName) context.Context {
	return context.WithValue(ctx, actsFor{}, h)
}

// others refuses what another host has. An empty host is nobody.
func others(ctx context.Context, what string, has model.HostName) error {
	if h, ok := ctx.Value(actsFor{}).(model.HostName); ok && has != h {
		return model.Errorf(model.ErrConflict, "%s is of host %q now, and an agent may change what its own host has", what, has)
	}
	return nil
}

// AddressHost returns the host for which an address is reserved, or that has its
// endpoint; "" = it is no host's own. One that nobody has is model.ErrNotFound.
func (c *Controller) AddressHost(ctx context.Context, k model.NetworkKey, a netip.Addr) (h model.HostName, err error) {
	v, err := c.View(ctx)
	if err != nil {
		return "", err
	}
	return read(v, func() model.HostName {
		var owner tables.Address
		owner, err = v.ownerOf(tables.AddressKey{Network: k, Addr: a})
		return v.hostOf(owner)
	}), err
}

func (v *View) ownerOf(k tables.AddressKey) (tables.Address, error) {
	if s := v.spaces[k.Network]; s != nil {
		if o, there := s.owners[k.Addr]; there {
			return o.Address, nil
		}
	}
	return tables.Address{}, model.Errorf(model.ErrNotFound, "address %s of network %q is not allocated", k.Addr, k.Network)
}

func (v *View) hostOf(a tables.Address) model.HostName {
	if a.Reservation != nil {
		return a.Reservation.Host
	}
	return v.endpoints[model.EndpointKey{Network: a.Network, ID: a.Endpoint}].Host
}

// Written returns the revision of the last write of an object that users write, as far
// as the view has it: 0 = there is none. A network policy is written with each of its rules.
// Of endpoints and hosts it keeps none. kind is as in lists to be applied.
func (v *View) Written(kind, key string) store.Revision {
	return read(v, func() store.Revision { return v.written[writtenKeyOf(kind, key)].rev })
}

type writtenKey struct{ kind, key string }

func writtenKeyOf(kind, key string) writtenKey {
	if kind == "networkPolicy" { // they are rows of the same table
		kind = "policy"
	}
	return writtenKey{kind, key}
}

// lastWrite is where an object's row lies, and the revision of its last write.
type lastWrite struct {
	row string
	rev store.Revision
}

// note keeps the revision of a change.
func (v *View) note(kind string, ch tables.Change) {
	if kind == "" {
		return
	}
	if fabricKinds[kind] {
		v.fabric.Tell()
	}
	k := writtenKey{kind, fmt.Sprint(ch.Key)}
	switch key := ch.Key.(type) { // those whose text is not what users write
	case tables.GlobalKey, tables.AciGwKey:
		k.key = kind
	case tables.BgpKey:
		k.key = string(key.Host)
	}
	if ch.Deleted() {
		delete(v.written, k)
	} else {
		v.written[k] = lastWrite{ch.Row, ch.Mod}
	}
}
