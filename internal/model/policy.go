package model

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
)

// Tier orders policies of different worlds: lower numbers decide first, and what
// a tier passes on goes to the next. Numbers are internal; a tier is stored, and
// written by users, as its name.
type Tier uint8

// The tiers that policies can be in, in deciding order. What is in none of them
// comes from a newer version, and denies.
const (
	TierAdmin      Tier = 5
	TierContiv     Tier = 10
	TierKubernetes Tier = 20
	TierBaseline   Tier = 30
	tierNotKnown   Tier = 255
)

// Tiers around those of policies, which keep tenants that share networks apart.
const (
	TierTenants Tier = 2
	TierShared  Tier = 40
)

// Tiers returns all tiers in deciding order.
func Tiers() []Tier { return []Tier{TierAdmin, TierContiv, TierKubernetes, TierBaseline} }

func (t Tier) String() string {
	switch t {
	case TierAdmin:
		return "admin"
	case TierContiv:
		return "contiv"
	case TierKubernetes:
		return "kubernetes"
	case TierBaseline:
		return "baseline"
	case TierTenants:
		return "tenants"
	case TierShared:
		return "shared"
	case tierNotKnown:
	}
	return fmt.Sprintf("tier %d", uint8(t))
}

// IsKnown reports whether this version knows the tier.
func (t Tier) IsKnown() bool {
	return t == TierAdmin || t == TierContiv || t == TierKubernetes || t == TierBaseline
}

// ParseTier parses a tier's name. The error is of kind ErrInvalid.
func ParseTier(s string) (Tier, error) {
	var names []string
	for _, t := range Tiers() {
		if t.String() == s {
			return t, nil
		}
		names = append(names, t.String())
	}
	return tierNotKnown, InvalidField("tier", s, "must be one of "+strings.Join(names, ", "))
}

// MarshalText writes the tier's name.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a tier's name. One that is not known is no error: the
// policy has to be read, so that it can be closed.
func (t *Tier) UnmarshalText(b []byte) error {
	*t, _ = ParseTier(string(b))
	return nil
}

// PolicyKind says in which words a policy was written, and is shown again.
type PolicyKind string

// PolicyOwner says who a policy belongs to: others may not change it.
type PolicyOwner string

// The kinds and owners of policies.
const (
	KindContiv  PolicyKind = "contiv"  // a 1.x policy with its rules
	KindNetwork PolicyKind = "network" // a network policy, by selectors

	OwnerUser       PolicyOwner = "user"
	OwnerKubernetes PolicyOwner = "kubernetes"
)

// MaxOrder is the highest order of a policy in its tier; OrderContiv is the order of
// Contiv's policies.
const (
	MaxOrder    = 200
	OrderContiv = 100
)

// Policy is the general policy that all data planes enforce. It applies to the
// endpoints that Applies selects, or if Attached to those of the groups whose
// record names it. Its rules are rows of their own (PolicyRule).
//
// A tier's rules that apply to an endpoint are one list: by order of their
// policies (the lower first), priority (the higher first), then Deny before Pass
// before Allow. The first that matches decides. When none matches, the strongest
// Default of the tier's policies decides: Deny, then Allow, then Pass.
type Policy struct {
	Key   PolicyKey   `json:"key"`
	Kind  PolicyKind  `json:"kind"`
	Owner PolicyOwner `json:"owner"`
	// Object is the Kubernetes object that a Contiv policy belongs to, "" = it is the
	// users'. Control writes it, and requests do not set it.
	Object   string   `json:"object,omitempty"`
	Tier     Tier     `json:"tier"`
	Order    int      `json:"order"` // 0 to MaxOrder
	Attached bool     `json:"attached,omitempty"`
	Applies  Selector `json:"applies,omitzero"` // of the policy's tenant; not when Attached
	Default  Defaults `json:"default,omitzero"`
	Audit    bool     `json:"audit,omitempty"` // tell what it would do, and do nothing
}

// Defaults are what a policy says of connections that no rule matches, by
// direction; empty = nothing.
type Defaults struct {
	In  Action `json:"in,omitempty"`
	Out Action `json:"out,omitempty"`
}

// Decides reports whether a default allows or denies: none and pass leave it to the next
// tier.
func (d Defaults) Decides() bool {
	return d.In != "" && d.In != Pass || d.Out != "" && d.Out != Pass
}

// Of returns the default of a direction.
func (d Defaults) Of(dir Direction) Action {
	if dir == Out {
		return d.Out
	}
	return d.In
}

// Equal compares two policies by contents.
func (p Policy) Equal(o Policy) bool { return reflect.DeepEqual(p, o) }

// Validate checks all fields. The error is of kind ErrInvalid.
func (p Policy) Validate() error {
	if _, err := ParsePolicyKey(p.Key.String()); err != nil {
		return err
	}
	if _, err := parseEnum("kind", string(p.Kind), KindContiv, KindNetwork); err != nil {
		return err
	}
	if _, err := parseEnum("owner", string(p.Owner), OwnerUser, OwnerKubernetes); err != nil {
		return err
	}
	if _, err := ParseTier(p.Tier.String()); err != nil {
		return err
	}
	if p.Order < 0 || p.Order > MaxOrder {
		return InvalidField("order", p.Order, fmt.Sprintf("must be between 0 and %d", MaxOrder))
	}
	for _, d := range []struct {
		field  string
		action Action
	}{{"defaultIn", p.Default.In}, {"defaultOut", p.Default.Out}} {
		if d.action == "" {
			continue
		}
		if _, err := parseAnyAction(d.field, d.action); err != nil {
			return err
		}
	}
	switch {
	case p.Attached && !p.Applies.IsZero():
		return InvalidField("applies", p.Applies, "must be empty for a policy that groups name")
	case p.Attached:
		return nil
	case p.Applies.Tenant != p.Key.Tenant:
		return InvalidField("applies", p.Applies, "must select in the policy's own tenant")
	}
	return p.Applies.Validate("applies")
}

// PolicyRule is one rule of a Policy.
type PolicyRule struct {
	Key       RuleKey     `json:"key"`
	Direction Direction   `json:"direction"`
	Priority  int         `json:"priority"` // 1 to 100, the higher decides
	Action    Action      `json:"action"`
	Log       bool        `json:"log,omitempty"`   // tell of connections that it decides about
	Peers     []Peer      `json:"peers,omitempty"` // empty = any peer
	Ports     []PortMatch `json:"ports,omitempty"` // empty = any protocol
}

// Peer names the other side of a connection by selector, by addresses with
// exceptions, or by network; exactly one is set.
type Peer struct {
	Selector *Selector      `json:"selector,omitempty"`
	CIDR     netip.Prefix   `json:"cidr,omitzero"`
	Except   []netip.Prefix `json:"except,omitempty"` // inside CIDR
	Network  NetworkKey     `json:"network,omitzero"` // endpoints of the network; on a VLAN network also outside addresses of its subnets
	Text     string         `json:"text,omitempty"`   // CIDR as the user wrote it
}

// PortMatch matches a protocol and, if it has ports, an inclusive range of
// destination ports; Lo = 0 and Hi = 65535 match all. With a Name, Lo and Hi are 0,
// and it matches the port to which the identity that is asked gives that name.
type PortMatch struct {
	Protocol Protocol `json:"protocol"`
	Lo       uint16   `json:"lo"`
	Hi       uint16   `json:"hi"`
	Name     string   `json:"name,omitempty"`
}

// Matches reports whether a packet's protocol and destination port match. ICMP
// matches ICMPv6 too. By a name nothing is matched: it has to be resolved.
func (m PortMatch) Matches(p Protocol, port uint16) bool {
	if m.Name != "" {
		return false
	}
	if m.Protocol == AnyProtocol {
		return true
	}
	if m.Protocol == ProtoICMP && p == ProtoICMPv6 {
		return true
	}
	return m.Protocol == p && (!p.HasPorts() || m.Lo <= port && port <= m.Hi)
}

// Limits of one rule.
const (
	MaxRulePeers  = 64
	MaxRulePorts  = 64
	MaxRuleExcept = 64 // of one peer
)

// Validate checks all fields. The error is of kind ErrInvalid.
func (r PolicyRule) Validate() error {
	if _, err := ParseRuleKey(r.Key.String()); err != nil {
		return err
	}
	if _, err := ParseDirection(string(r.Direction)); err != nil {
		return err
	}
	if _, err := parseAnyAction("action", r.Action); err != nil {
		return err
	}
	if r.Priority < 1 || r.Priority > 100 {
		return InvalidField("priority", r.Priority, "must be between 1 and 100")
	}
	if len(r.Peers) > MaxRulePeers {
		return InvalidField("peers", len(r.Peers), fmt.Sprintf("must be at most %d", MaxRulePeers))
	}
	if len(r.Ports) > MaxRulePorts {
		return InvalidField("ports", len(r.Ports), fmt.Sprintf("must be at most %d", MaxRulePorts))
	}
	for i, p := range r.Peers {
		if err := p.validate(fmt.Sprintf("peers[%d]", i), r.Key.Tenant); err != nil {
			return err
		}
	}
	for _, m := range r.Ports {
		if err := m.validate(); err != nil {
			return err
		}
	}
	return nil
}

// Equal compares two rules by contents.
func (r PolicyRule) Equal(o PolicyRule) bool { return reflect.DeepEqual(r, o) }

// kinds are the ways in which a peer is named.
func (p Peer) kinds() (names []string) {
	for _, way := range []struct {
		name string
		is   bool
	}{{"selector", p.Selector != nil}, {"cidr", p.CIDR.IsValid()}, {"network", p.Network != (NetworkKey{})}} {
		if way.is {
			names = append(names, way.name)
		}
	}
	return names
}

func (p Peer) validate(field string, t TenantName) error {
	switch {
	case len(p.kinds()) != 1:
		return InvalidField(field, strings.Join(p.kinds(), ", "), "must name endpoints by one of selector, cidr and network")
	case p.Selector != nil && p.Selector.Tenant != t, p.Network != (NetworkKey{}) && p.Network.Tenant != t:
		return InvalidField(field, t, "must be of the policy's own tenant")
	case !p.CIDR.IsValid() && (len(p.Except) > 0 || p.Text != ""):
		return InvalidField(field+".except", fmt.Sprint(p.Except), "must be beside a cidr")
	case p.Selector != nil:
		return p.Selector.Validate(field + ".selector")
	case !p.CIDR.IsValid():
		return optionalName(field+".network", string(p.Network.Name), MaxName)
	case p.CIDR != p.CIDR.Masked():
		return InvalidField(field+".cidr", p.CIDR, "must not have bits set beyond its length")
	case len(p.Except) > MaxRuleExcept:
		return InvalidField(field+".except", len(p.Except), fmt.Sprintf("must be at most %d", MaxRuleExcept))
	}
	for _, x := range p.Except {
		if x != x.Masked() || x.Bits() <= p.CIDR.Bits() || !p.CIDR.Contains(x.Addr()) {
			return InvalidField(field+".except", x, "must be a part of "+p.CIDR.String())
		}
	}
	return checkRawText(field+".cidr", p.Text, p.CIDR, func(s string) (netip.Prefix, error) { return ParsePeerAddr(field+".cidr", s) })
}

func (m PortMatch) validate() error {
	switch {
	case m.Protocol < 0 || m.Protocol > 255:
		return InvalidField("protocol", int(m.Protocol), "must be between 0 and 255")
	case m.Name != "" && (!isPortName(m.Name) || m.Lo != 0 || m.Hi != 0 || !m.Protocol.HasPorts()):
		return InvalidField("ports", m.Name, wantPortName+", of tcp, udp or sctp, without a number")
	case m.Name != "":
		return nil
	case m.Lo > m.Hi:
		return InvalidField("ports", fmt.Sprintf("%d-%d", m.Lo, m.Hi), "must not end before they begin")
	case !m.Protocol.HasPorts() && (m.Lo != 0 || m.Hi != 65535):
		return InvalidField("ports", fmt.Sprintf("%d-%d", m.Lo, m.Hi), fmt.Sprintf("must be empty unless protocol is tcp, udp or 132 (sctp); it is %q", m.Protocol))
	}
	return nil
}
