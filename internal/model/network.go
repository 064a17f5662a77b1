package model

import (
	"fmt"
	"net/netip"
)

var _ = register(Kind{
	Collection: "networks", Name: "network", Order: 30,
	NoEffects: []NoEffect{
		{
			Field: "cfgdTag",
			Text:  "a network's tag is kept and shown, and has no other effect yet: no runtime gets a network of that name",
			set:   in(func(n Network) bool { return n.CfgdTag != "" }),
		},
	},
})

// NetworkName names a network within its tenant.
type NetworkName string

// NetworkKey names a network within the cluster.
type NetworkKey struct {
	Tenant TenantName  `json:"tenant"`
	Name   NetworkName `json:"name"`
}

func (k NetworkKey) String() string { return string(k.Tenant) + ":" + string(k.Name) }

// ParseNetworkKey parses "tenant:network". The error is of kind ErrInvalid.
func ParseNetworkKey(s string) (NetworkKey, error) {
	t, n, err := split2("network", s)
	return NetworkKey{TenantName(t), NetworkName(n)}, err
}

// ParseNetworkName checks a network's name. The error is of kind ErrInvalid.
func ParseNetworkName(s string) (NetworkName, error) {
	return NetworkName(s), parseName("networkName", s, MaxName)
}

func (k NetworkKey) validate() error {
	if _, err := ParseTenantName(string(k.Tenant)); err != nil {
		return err
	}
	_, err := ParseNetworkName(string(k.Name))
	return err
}

// NetworkID numbers a network within the cluster, 1-65535; zero is "none".
// Data planes use it wherever a network must fit 16 bits (conntrack zones, map
// keys, registers), since VLAN ids and VNIs may coincide and VNIs are wider.
type NetworkID uint16

// Network is a layer 2 segment with its subnets.
type Network struct {
	Key       NetworkKey   `json:"key"`
	Type      NetworkType  `json:"type"`
	Encap     Encap        `json:"encap"`
	ReqTag    uint32       `json:"reqTag,omitempty"` // as asked for; 0 = allocate
	Tag       uint32       `json:"tag"`              // allocated VLAN id or VNI
	ID        NetworkID    `json:"id"`               // allocated
	Subnet    netip.Prefix `json:"subnet"`           // IPv4, masked; invalid (zero) on an IPv6-only network
	Range     AddrRange    `json:"range,omitzero"`   // IPv4 addresses that automatic allocation may use; zero = all of Subnet
	Gateway   netip.Addr   `json:"gateway,omitzero"` // inside Subnet, neither its first nor last address; zero = none
	Subnet6   netip.Prefix `json:"subnet6,omitzero"`
	Gateway6  netip.Addr   `json:"gateway6,omitzero"`
	CfgdTag   string       `json:"cfgdTag,omitempty"`
	Routed    bool         `json:"native,omitempty"`    // hosts' stacks know its endpoints by their own addresses
	RawSubnet string       `json:"rawSubnet,omitempty"` // the subnet as the user wrote it, echoed by the API

	RawSubnet6 string   `json:"rawSubnet6,omitempty"` // likewise ipv6Subnet
	Identity   Identity `json:"identity,omitempty"`   // allocated: identity of the endpoints without group and labels
	// Object is the Kubernetes object that it belongs to, "" = it is the users'. Control
	// writes it, and requests do not set it.
	Object string `json:"object,omitempty"`
	// ByTenant: who created it is no cluster administrator. It changes no routes of hosts,
	// and BGP announces nothing of it, unless Allowed: its subnets lay in a prefix that
	// cluster administrators allowed to tenants (Global.TenantPrefixes) when it was created;
	// BGP goes by the present ones. Control writes both.
	ByTenant bool `json:"byTenant,omitempty"`
	Allowed  bool `json:"allowed,omitempty"`
}

// OnHosts reports whether hosts may have routes to the network.
func (n Network) OnHosts() bool { return !n.ByTenant || n.Allowed }

// ParseReqTag checks a requested VLAN id or VNI; 0 = allocate one.
func ParseReqTag(encap Encap, n int64) (uint32, error) {
	limit := int64(MaxVNI)
	if encap == EncapVLAN {
		limit = MaxVLAN
	}
	if n < 0 || n > limit {
		return 0, InvalidField("pktTag", n, fmt.Sprintf("must be between 1 and %d for encap %s, or 0 to allocate one", limit, encap))
	}
	return uint32(n), nil
}

// Validate checks what a user gives of a network (not Tag and ID, which are
// allocated). The error is of kind ErrInvalid.
func (n Network) Validate() error {
	if err := n.Key.validate(); err != nil {
		return err
	}
	if n.Type != NetworkData && n.Type != NetworkInfra {
		_, err := parseEnum("nwType", string(n.Type), NetworkData, NetworkInfra)
		return err
	}
	if n.Type == NetworkInfra {
		if err := n.validateInfra(); err != nil {
			return err
		}
	}
	if _, err := ParseEncap(string(n.Encap)); err != nil {
		return err
	}
	if _, err := ParseReqTag(n.Encap, int64(n.ReqTag)); err != nil {
		return err
	}
	if !n.Subnet.IsValid() && !n.Subnet6.IsValid() {
		return InvalidField("subnet", "", "must be given, or ipv6Subnet, or both")
	}
	if n.Routed && n.Key.Tenant != DefaultTenant {
		return InvalidField("native", n.Routed, fmt.Sprintf("is for networks of tenant %s alone: hosts know its containers by their own addresses, and other tenants' may be equal", DefaultTenant))
	}
	if n.Routed && n.Encap != EncapVXLAN {
		return InvalidField("native", n.Routed, "is for networks of encap vxlan alone: hosts and containers of other hosts reach each other by tunnels")
	}
	if err := n.validateSubnet4(); err != nil {
		return err
	}
	if n.Subnet6.IsValid() {
		p, err := ParseSubnet6("ipv6Subnet", n.Subnet6.String())
		if err != nil {
			return err
		}
		if p != n.Subnet6 {
			return InvalidField("ipv6Subnet", n.Subnet6, "must not have bits set beyond its length")
		}
	}
	if err := checkRawText("ipv6Subnet", n.RawSubnet6, n.Subnet6, func(s string) (netip.Prefix, error) {
		return ParseSubnet6("ipv6Subnet", s)
	}); err != nil {
		return err
	}
	if err := checkGateway("gateway", n.Gateway, "subnet", n.Subnet); err != nil {
		return err
	}
	if err := checkGateway("ipv6Gateway", n.Gateway6, "ipv6Subnet", n.Subnet6); err != nil {
		return err
	}
	if n.Range.IsValid() && n.Range.First == n.Range.Last && n.Range.First == n.Gateway {
		return InvalidField("gateway", n.Gateway, "must not be the only address of the range")
	}
	return optionalName("cfgdTag", n.CfgdTag, MaxCfgdTag)
}

func (n Network) validateSubnet4() error {
	if !n.Subnet.IsValid() {
		if n.Range.IsValid() {
			return InvalidField("subnet", n.Range, "must have a subnet around its range")
		}
		return checkRawText("subnet", n.RawSubnet, n.Subnet, nil)
	}
	if n.Range.IsValid() {
		if why := rangeFault(n.Subnet, n.Range); why != "" {
			return InvalidField("subnet", FormatSubnet4(n.Subnet, n.Range), why)
		}
	}
	p, r, err := ParseSubnet4("subnet", FormatSubnet4(n.Subnet, n.Range))
	if err != nil {
		return err
	}
	if p != n.Subnet || r != n.Range {
		return InvalidField("subnet", n.Subnet, "must not have bits set beyond its length")
	}
	return checkRawText("subnet", n.RawSubnet, n.Subnet, func(s string) (netip.Prefix, error) {
		p, r, err := ParseSubnet4("subnet", s)
		if err == nil && r != n.Range {
			p = netip.Prefix{}
		}
		return p, err
	})
}

// CheckPool checks that a group's pool fits its network: inside the subnet and
// the network's range, without network, broadcast and gateway address.
func (n Network) CheckPool(pool AddrRange) error {
	if !pool.IsValid() {
		return nil
	}
	if !n.Subnet.IsValid() {
		return InvalidField("ipPool", pool, fmt.Sprintf("must be empty: network %s has no IPv4 subnet", n.Key))
	}
	if why := rangeFault(n.Subnet, pool); why != "" {
		return InvalidField("ipPool", pool, why)
	}
	if n.Range.IsValid() && (!n.Range.Contains(pool.First) || !n.Range.Contains(pool.Last)) {
		return InvalidField("ipPool", pool, fmt.Sprintf("must lie inside the network's range %s", n.Range))
	}
	if n.Gateway.IsValid() && pool.Contains(n.Gateway) {
		return InvalidField("ipPool", pool, fmt.Sprintf("must not contain the gateway %s", n.Gateway))
	}
	return nil
}
