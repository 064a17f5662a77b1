package tables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// BucketKey names a block of a tenant's address space; the zero Block stands
// for the wide subnets, which contain whole blocks.
type BucketKey struct {
	Tenant model.TenantName `json:"tenant"`
	Block  netip.Prefix     `json:"block,omitzero"`
}

// SubnetBucket holds the subnets that lie in a block, or are wide.
type SubnetBucket struct {
	BucketKey
	Subnets map[string]model.NetworkName `json:"subnets"` // prefix -> whose
}

// SubnetBlocksOf is the scope of a tenant's blocks (not of its wide subnets).
func SubnetBlocksOf(t model.TenantName) string { return allocOf("subnet", t) + "block/" }

// Subnets holds the subnets of networks by tenant and block, for overlap checks.
var Subnets = declare(TableSpec[BucketKey, SubnetBucket]{
	Noun: "subnet block", Version: 1,
	Path: "state/alloc/subnet/*/*/*",
	Parse: func(n []string) (BucketKey, bool) {
		k := BucketKey{Tenant: model.TenantName(n[0])}
		if n[1] == "wide" {
			return k, n[2] == wideName
		}
		var ok bool
		k.Block, ok = parseBlock(n[2])
		return k, ok && n[1] == "block"
	},
	KeyOf: func(b SubnetBucket) BucketKey { return b.BucketKey },
	Scope: func(k BucketKey) string {
		if !k.Block.IsValid() {
			return allocOf("subnet", k.Tenant) + "wide/"
		}
		return SubnetBlocksOf(k.Tenant)
	},
	Name: func(k BucketKey) string {
		if !k.Block.IsValid() {
			return wideName
		}
		return AddrName(k.Block.Addr()) + "-" + strconv.Itoa(k.Block.Bits())
	},
})

// wideName is the name of the one bucket of a tenant's wide subnets.
const wideName = "all"

func parseBlock(s string) (netip.Prefix, bool) {
	name, bits, ok := strings.Cut(s, "-")
	a, ok2 := parseAddrName(name)
	n, err := strconv.Atoi(bits)
	if !ok || !ok2 || err != nil {
		return netip.Prefix{}, false
	}
	p := netip.PrefixFrom(a, n)
	return p, p.IsValid()
}
