package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// MaxCfgdTag is the length limit of configured tags.
const MaxCfgdTag = 128

// Limits of what a runtime may tell about an endpoint.
const (
	MaxEndpointText  = 256 // characters of an endpoint's common name and container id
	MaxLabels        = 128
	MaxLabelKey      = 317 // Kubernetes: prefix of 253, slash, name of 63
	MaxLabelValue    = 1024
	wantEndpointText = "must be at most 256 printable characters"
)

// DefaultGlobal returns the settings that a fresh cluster has.
func DefaultGlobal() Global {
	return Global{
		Infra:     InfraDefault,
		FwdMode:   FwdBridge,
		ArpMode:   ArpProxy,
		VLANs:     TagRange{1, MaxVLAN},
		VXLANs:    TagRange{1, 10000},
		PvtSubnet: netip.MustParsePrefix("172.19.0.0/16"),
	}
}

// Merge returns g with every field that is set in change taken from there;
// fields of change with their zero value stay as they are in g.
func (g Global) Merge(change Global) Global {
	set(&g.Infra, change.Infra)
	set(&g.FwdMode, change.FwdMode)
	set(&g.ArpMode, change.ArpMode)
	set(&g.VLANs, change.VLANs)
	set(&g.VXLANs, change.VXLANs)
	set(&g.PvtSubnet, change.PvtSubnet)
	return g
}

func set[T comparable](to *T, from T) {
	var zero T
	if from != zero {
		*to = from
	}
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (g Global) Validate() error {
	if _, err := ParseInfraType(string(g.Infra)); err != nil {
		return err
	}
	if _, err := ParseFwdMode(string(g.FwdMode)); err != nil {
		return err
	}
	if _, err := ParseArpMode(string(g.ArpMode)); err != nil {
		return err
	}
	if _, err := ParseTagRange("vlans", g.VLANs.String(), MaxVLAN); err != nil {
		return err
	}
	if _, err := ParseTagRange("vxlans", g.VXLANs.String(), MaxVNI); err != nil {
		return err
	}
	p, err := ParsePvtSubnet(g.PvtSubnet.String())
	if err == nil && p != g.PvtSubnet {
		err = InvalidField("pvtSubnet", g.PvtSubnet, "must not have bits set beyond its length")
	}
	return err
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (t Tenant) Validate() error {
	if _, err := ParseTenantName(string(t.Name)); err != nil {
		return err
	}
	return optionalName("defaultNetwork", string(t.DefaultNetwork), MaxName)
}

func optionalName(field, s string, limit int) error {
	if s == "" {
		return nil
	}
	return parseName(field, s, limit)
}

func (k NetworkKey) validate() error {
	if _, err := ParseTenantName(string(k.Tenant)); err != nil {
		return err
	}
	_, err := ParseNetworkName(string(k.Name))
	return err
}

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
	if _, err := ParseEncap(string(n.Encap)); err != nil {
		return err
	}
	if _, err := ParseReqTag(n.Encap, int64(n.ReqTag)); err != nil {
		return err
	}
	if !n.Subnet.IsValid() && !n.Subnet6.IsValid() {
		return InvalidField("subnet", "", "must be given, or ipv6Subnet, or both")
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
	if err := rawText("ipv6Subnet", n.RawSubnet6, n.Subnet6, func(s string) (netip.Prefix, error) {
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
		return rawText("subnet", n.RawSubnet, n.Subnet, nil)
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
	return rawText("subnet", n.RawSubnet, n.Subnet, func(s string) (netip.Prefix, error) {
		p, r, err := ParseSubnet4("subnet", s)
		if err == nil && r != n.Range {
			p = netip.Prefix{}
		}
		return p, err
	})
}

// rawText checks that the kept text of a value still means the value.
func rawText(field, raw string, want netip.Prefix, parse func(string) (netip.Prefix, error)) error {
	if raw == "" {
		return nil
	}
	if parse == nil || !want.IsValid() {
		return InvalidField(field, raw, "must be empty, as the parsed subnet is")
	}
	got, err := parse(raw)
	if err == nil && got != want {
		err = InvalidField(field, raw, fmt.Sprintf("must mean the parsed subnet %s", want))
	}
	return err
}

// Validate checks what a user gives of a group (not ID, which is allocated, and
// not that the pool fits the network). The error is of kind ErrInvalid.
func (g Group) Validate() error {
	if _, err := ParseTenantName(string(g.Key.Tenant)); err != nil {
		return err
	}
	if _, err := ParseGroupName(string(g.Key.Name)); err != nil {
		return err
	}
	if _, err := ParseNetworkName(string(g.Network)); err != nil {
		return err
	}
	for _, p := range g.Policies {
		if err := parseName("policies", string(p), MaxName); err != nil {
			return err
		}
	}
	if g.Pool.First.IsValid() != g.Pool.Last.IsValid() {
		return InvalidField("ipPool", g.Pool, "must have a first and a last address")
	}
	if g.Pool.IsValid() {
		if _, err := ParseAddrRange("ipPool", g.Pool.String()); err != nil {
			return err
		}
	}
	if err := optionalName("netProfile", g.NetProfile, MaxName); err != nil {
		return err
	}
	for _, c := range g.ExtContracts {
		if err := parseName("extContractsGrps", c, MaxName); err != nil {
			return err
		}
	}
	return optionalName("cfgdTag", g.CfgdTag, MaxCfgdTag)
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
		return InvalidField("ipPool", pool, fmt.Sprintf("must not hold the gateway %s", n.Gateway))
	}
	return nil
}

// Validate checks the key. The error is of kind ErrInvalid.
func (p ContivPolicy) Validate() error {
	if _, err := ParseTenantName(string(p.Key.Tenant)); err != nil {
		return err
	}
	_, err := ParsePolicyName(string(p.Key.Name))
	return err
}

// ParsePriority checks a rule's priority: 1-100, and 0 (absent) means 1.
func ParsePriority(n int) (int, error) {
	if n == 0 {
		return 1, nil
	}
	if n < 1 || n > 100 {
		return 0, InvalidField("priority", n, "must be between 1 and 100")
	}
	return n, nil
}

// ParsePort checks a rule's port: 0 (any) to 65535.
func ParsePort(n int) (uint16, error) {
	if n < 0 || n > 65535 {
		return 0, InvalidField("port", n, "must be between 0 (any) and 65535")
	}
	return uint16(n), nil
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (r Rule) Validate() error {
	if _, err := ParseRuleKey(r.Key.String()); err != nil {
		return err
	}
	if _, err := ParseDirection(string(r.Direction)); err != nil {
		return err
	}
	if _, err := ParseAction(string(r.Action)); err != nil {
		return err
	}
	if r.Priority < 1 || r.Priority > 100 {
		return InvalidField("priority", r.Priority, "must be between 1 and 100")
	}
	if r.Protocol < AnyProtocol || r.Protocol > 255 {
		return InvalidField("protocol", int(r.Protocol), "must be between 0 and 255")
	}
	if r.Port != 0 && !r.Protocol.HasPorts() {
		return InvalidField("port", r.Port, fmt.Sprintf("must be 0 unless protocol is tcp, udp or 132 (sctp); it is %q", r.Protocol))
	}
	side := "from"
	if r.Direction == Out {
		side = "to"
	}
	if err := optionalName(side+"EndpointGroup", string(r.Group), MaxName); err != nil {
		return err
	}
	if err := optionalName(side+"Network", string(r.Network), MaxName); err != nil {
		return err
	}
	var kinds []string
	if r.Group != "" {
		kinds = append(kinds, side+"EndpointGroup")
	}
	if r.Network != "" {
		kinds = append(kinds, side+"Network")
	}
	if r.Addr.IsValid() {
		kinds = append(kinds, side+"IpAddress")
	}
	if len(kinds) > 1 {
		return InvalidField("ruleId", r.Key.Rule, "must name one kind of peer at most, not "+strings.Join(kinds, " and "))
	}
	if r.Addr.IsValid() && r.Addr != r.Addr.Masked() {
		return InvalidField(side+"IpAddress", r.Addr, "must not have bits set beyond its length")
	}
	return rawText(side+"IpAddress", r.RawAddr, r.Addr, func(s string) (netip.Prefix, error) {
		return ParsePeerAddr(side+"IpAddress", s)
	})
}

// Validate checks what a runtime gives of an endpoint (not Identity, which
// is derived, and not that addresses fit the network). A zero MAC means none.
func (e Endpoint) Validate() error {
	if err := e.Key.Network.validate(); err != nil {
		return err
	}
	if _, err := ParseEndpointID(string(e.Key.ID)); err != nil {
		return err
	}
	if err := optionalName("ServiceName", string(e.Group), MaxName); err != nil {
		return err
	}
	if err := optionalName("Host", string(e.Host), 256); err != nil {
		return err
	}
	if e.IPv4.IsValid() && !e.IPv4.Is4() {
		return InvalidField("IPAddress", e.IPv4, "must be an IPv4 address")
	}
	if e.IPv6.IsValid() && (!e.IPv6.Is6() || e.IPv6.Is4In6() || e.IPv6.Zone() != "") {
		return InvalidField("IPv6Address", e.IPv6, "must be an IPv6 address")
	}
	if e.MAC[0]&1 != 0 {
		return InvalidField("MacAddress", e.MAC, "must be that of one interface: an even first byte")
	}
	if !printable(e.Name) {
		return InvalidField("EPCommonName", e.Name, wantEndpointText)
	}
	if !printable(e.Container) {
		return InvalidField("ContainerID", e.Container, wantEndpointText)
	}
	return ValidateLabels(e.Labels)
}

// ValidateLabels checks a container's labels: at most MaxLabels, keys of 1 to
// MaxLabelKey bytes and values of at most MaxLabelValue.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return InvalidField("Labels", len(labels), fmt.Sprintf("must be at most %d", MaxLabels))
	}
	for k, v := range labels {
		if k == "" || len(k) > MaxLabelKey {
			return InvalidField("Labels", k, fmt.Sprintf("must have keys of 1 to %d bytes", MaxLabelKey))
		}
		if len(v) > MaxLabelValue {
			return InvalidField("Labels", k, fmt.Sprintf("must have values of at most %d bytes", MaxLabelValue))
		}
	}
	return nil
}

func printable(s string) bool {
	if len(s) > MaxEndpointText {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
}
