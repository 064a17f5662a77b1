package control

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Two networks of a tenant must not overlap. To check that without reading all
// of a tenant's networks, its address space is cut into blocks: a subnet that
// lies in one block is listed in the block's row, a wider one in the tenant's
// row of wide subnets. Who adds a narrow subnet reads both rows and writes its
// block; who adds a wide one reads all blocks. So creators of networks in
// different blocks do not conflict.
const (
	block4 = 20 // 16 subnets of length 24
	block6 = 56 // 256 subnets of length 64
)

// bucketOf returns the row that lists a subnet.
func bucketOf(t model.TenantName, p netip.Prefix) tables.BucketKey {
	bits := block6
	if p.Addr().Is4() {
		bits = block4
	}
	if p.Bits() < bits {
		return tables.BucketKey{Tenant: t}
	}
	return tables.BucketKey{Tenant: t, Block: netip.PrefixFrom(p.Addr(), bits).Masked()}
}

// subnetKeys returns the store keys that claiming the subnets reads.
func subnetKeys(t model.TenantName, subnets []netip.Prefix) []string {
	keys := []string{tables.Subnets.Key(tables.BucketKey{Tenant: t})}
	for _, p := range subnets {
		if b := bucketOf(t, p); b.Block.IsValid() {
			keys = append(keys, tables.Subnets.Key(b))
		}
	}
	return keys
}

// allocateSubnet enters a network's subnet, or fails with model.ErrConflict when
// it overlaps another one of the tenant.
func allocateSubnet(tx store.Tx, n model.NetworkKey, field string, p netip.Prefix) error {
	mine := bucketOf(n.Tenant, p)
	wide := tables.BucketKey{Tenant: n.Tenant}
	row, err := tables.Subnets.Find(tx, wide)
	if err != nil {
		return err
	}
	buckets := []tables.SubnetBucket{row.Value}
	if mine == wide {
		blocks, err := tables.Subnets.List(tx, tables.SubnetBlocksOf(n.Tenant))
		if err != nil {
			return err
		}
		buckets = append(buckets, blocks...)
	} else {
		if row, err = tables.Subnets.Find(tx, mine); err != nil {
			return err
		}
		buckets = append(buckets, row.Value)
	}
	for _, b := range buckets {
		for text, owner := range b.Subnets {
			other, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("read subnets of tenant %q: %w", n.Tenant, err)
			}
			if other.Overlaps(p) {
				return model.Errorf(model.ErrConflict, "%s %q: overlaps %s of network %q; networks of a tenant must not overlap", field, p, other, owner)
			}
		}
	}
	b := tables.SubnetBucket{BucketKey: mine, Subnets: map[string]model.NetworkName{p.String(): n.Name}}
	maps.Copy(b.Subnets, row.Value.Subnets)
	return tables.Subnets.Put(tx, b)
}

// freeSubnet takes a network's subnet out again.
func freeSubnet(tx store.Tx, n model.NetworkKey, p netip.Prefix) error {
	k := bucketOf(n.Tenant, p)
	row, err := tables.Subnets.Find(tx, k)
	if err != nil {
		return err
	}
	left := tables.SubnetBucket{BucketKey: k, Subnets: map[string]model.NetworkName{}}
	for text, owner := range row.Value.Subnets {
		if text != p.String() {
			left.Subnets[text] = owner
		}
	}
	if len(left.Subnets) == 0 {
		tables.Subnets.Delete(tx, k)
		return nil
	}
	return tables.Subnets.Put(tx, left)
}

func subnetsOf(n model.Network) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
		if p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}
