package model

import (
	"net/netip"
	"reflect"
	"slices"
)

var _ = register(Kind{
	Collection: "globals", Name: "global", Order: 10,
	NoEffects: []NoEffect{
		{
			Field: "networkInfraType", Value: string(InfraACIOpflex), Hosts: "all",
			Text: "infrastructure type aci-opflex has no effect: this version knows no OpFlex, and hosts forward as with type default",
			set:  in(func(g Global) bool { return g.Infra == InfraACIOpflex }),
		},
	},
})

// Global holds the cluster's settings; there is exactly one.
type Global struct {
	Infra     InfraType    `json:"infra"`
	FwdMode   FwdMode      `json:"fwdMode"`
	ArpMode   ArpMode      `json:"arpMode"`
	VLANs     TagRange     `json:"vlans"`     // within 1-4094
	VXLANs    TagRange     `json:"vxlans"`    // within 1-16777215
	PvtSubnet netip.Prefix `json:"pvtSubnet"` // IPv4 /16, masked
	// GeneratedLabels are the labels that are no part of an endpoint's identity;
	// records of before there was such a setting have none (see Filter).
	GeneratedLabels LabelFilter `json:"generatedLabels,omitempty"`
	// CountedLabels, sorted, are part of identities though the default list covers them:
	// policies of Kubernetes select by them. Only the leader sets it.
	CountedLabels []string `json:"countedLabels,omitempty"`
	// FormerLabels are earlier GeneratedLabels, as long as an endpoint may still have an
	// identity made with them. A change of GeneratedLabels sets it, and the leader clears
	// it.
	FormerLabels LabelFilter `json:"formerLabels,omitempty"`
	// TenantPrefixes are where networks of tenant administrators may have routes on hosts.
	// When there are some, BGP announces addresses within them alone.
	TenantPrefixes Prefixes `json:"tenantPrefixes,omitempty"`
}

// Filter returns the labels that are no part of the identity of an endpoint that
// is created or changed now.
func (g Global) Filter() LabelFilter { return g.Generated().except(g.CountedLabels) }

// Generated is the list of labels that the cluster takes for generated.
func (g Global) Generated() LabelFilter {
	if len(g.GeneratedLabels) == 0 {
		return defaultLabelFilter
	}
	return g.GeneratedLabels
}

// CanIdentify reports whether a label can be made part of identities: the default list covers
// it, and no added entry does.
func (g Global) CanIdentify(key string) bool {
	added := slices.DeleteFunc(slices.Clone(g.Generated()), defaultLabelFilter.has)
	return defaultLabelFilter.Covers(key) && !added.Covers(key)
}

// Equal compares all settings.
func (g Global) Equal(o Global) bool { return reflect.DeepEqual(g, o) }

// DefaultGlobal returns the settings that a fresh cluster has.
func DefaultGlobal() Global {
	return Global{
		Infra:     InfraDefault,
		FwdMode:   FwdBridge,
		ArpMode:   ArpProxy,
		VLANs:     TagRange{1, MaxVLAN},
		VXLANs:    TagRange{1, 10000},
		PvtSubnet: netip.MustParsePrefix("172.19.0.0/16"),

		GeneratedLabels: slices.Clone(defaultLabelFilter),
	}
}

// Merge returns g with the fields that are set in change replaced by change's; a field
// whose value is zero in change stays as in g.
func (g Global) Merge(change Global) Global {
	set(&g.Infra, change.Infra)
	set(&g.FwdMode, change.FwdMode)
	set(&g.ArpMode, change.ArpMode)
	set(&g.VLANs, change.VLANs)
	set(&g.VXLANs, change.VXLANs)
	set(&g.PvtSubnet, change.PvtSubnet)
	if len(change.GeneratedLabels) > 0 {
		g.GeneratedLabels = change.GeneratedLabels
	}
	if change.TenantPrefixes != nil {
		g.TenantPrefixes = change.TenantPrefixes
	}
	if len(g.TenantPrefixes) == 0 {
		g.TenantPrefixes = nil
	}
	return g
}

func set[T comparable](to *T, from T) {
	var zero T
	if from != zero {
		*to = from
	}
}

// Validate checks the fields that are set; a zero field means "unchanged" in a
// change. The error is of kind ErrInvalid.
func (g Global) Validate() error {
	g = DefaultGlobal().Merge(g)
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
	if err != nil {
		return err
	}
	if err := g.TenantPrefixes.validate("tenantPrefixes"); err != nil {
		return err
	}
	f, err := ParseLabelFilter("generatedLabels", g.GeneratedLabels)
	if err == nil && !slices.Equal(f, g.GeneratedLabels) {
		err = InvalidField("generatedLabels", g.GeneratedLabels, "must be sorted, and without \"default\"")
	}
	return err
}
