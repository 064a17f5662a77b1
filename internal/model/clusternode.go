package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// NodeName is the name of an orchestrator's node. Its host has the same name
// (HostName) where netplugin was not told another one.
type NodeName string

// ParseNodeName checks a node's name. The error is of kind ErrInvalid.
func ParseNodeName(s string) (NodeName, error) { return NodeName(s), parseName("node", s, 253) }

// MaxNodeAddrs is how many addresses of a node count.
const MaxNodeAddrs = 64

// ClusterNode is what services ask of a node.
type ClusterNode struct {
	Name  NodeName     `json:"name"`
	Addrs []netip.Addr `json:"addrs,omitempty"` // at which node ports are; sorted, each once
	Zone  string       `json:"zone,omitempty"`
}

// Equal compares two nodes by what they say.
func (n ClusterNode) Equal(o ClusterNode) bool {
	return n.Name == o.Name && n.Zone == o.Zone && slices.Equal(n.Addrs, o.Addrs)
}

// Validate checks the node. The error is of kind ErrInvalid.
func (n ClusterNode) Validate() error {
	if _, err := ParseNodeName(string(n.Name)); err != nil {
		return err
	}
	if len(n.Addrs) > MaxNodeAddrs {
		return InvalidField("addrs", len(n.Addrs), fmt.Sprintf("must be at most %d", MaxNodeAddrs))
	}
	for i, a := range n.Addrs {
		if !IsServiceAddr(a) || i > 0 && !n.Addrs[i-1].Less(a) {
			return InvalidField("addrs", a, WantServiceAddr+"; sorted, each once")
		}
	}
	return checkText("zone", n.Zone, 253)
}

// MaxServiceRanges is how many ranges of service addresses a cluster has at most.
const MaxServiceRanges = 64

// ServiceRanges are the prefixes of which an orchestrator gives addresses to services.
// No network overlaps one.
type ServiceRanges struct {
	Ranges []netip.Prefix `json:"ranges"` // sorted, each once
}

// Validate checks the ranges. The error is of kind ErrInvalid.
func (r ServiceRanges) Validate() error {
	if len(r.Ranges) > MaxServiceRanges {
		return InvalidField("ranges", len(r.Ranges), fmt.Sprintf("must be at most %d", MaxServiceRanges))
	}
	for i, p := range r.Ranges {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Bits() == 0 || i > 0 && r.Ranges[i-1].Compare(p) >= 0 {
			return InvalidField("ranges", p, "must be prefixes without bits of a host, sorted, each once")
		}
	}
	return nil
}

// Overlapping returns a range that overlaps a prefix.
func (r ServiceRanges) Overlapping(p netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(r.Ranges, p.Overlaps)
	if i < 0 {
		return netip.Prefix{}, false
	}
	return r.Ranges[i], true
}
