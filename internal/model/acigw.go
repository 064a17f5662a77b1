package model

import (
	"fmt"
	"regexp"
	"strings"
)

var _ = register(Kind{
	Collection: "aciGws", Name: "aciGw", Order: 120,
})

// AciGw holds the settings of an ACI fabric; there is one at most.
type AciGw struct {
	PhysicalDomain      string   `json:"physicalDomain,omitempty"`
	PathBindings        []string `json:"pathBindings,omitempty"` // "topology/pod-1/paths-101/pathep-[eth1/14]"
	NodeBindings        []string `json:"nodeBindings,omitempty"` // "topology/pod-1/node-101"
	EnforcePolicies     bool     `json:"enforcePolicies"`
	IncludeCommonTenant bool     `json:"includeCommonTenant"`
}

// MaxPhysicalDomain is the length limit of an ACI physical domain's name.
const MaxPhysicalDomain = 128

// MaxBindings is how many paths, and how many nodes, an ACI gateway may name.
const MaxBindings = 1024

var (
	pathRE   = pattern(`^topology/pod-[0-9]{1,4}/paths-[0-9]{1,4}/pathep-\[eth[0-9]{1,2}/[0-9]{1,2}\]$`)
	domainRE = pattern(`^[a-zA-Z0-9_.:-]*$`)
	nodeRE   = pattern(`^topology/pod-[0-9]{1,4}/node-[0-9]{1,4}$`)
)

// ParsePathBindings parses a comma-separated list; empty is none. The error is
// of kind ErrInvalid.
func ParsePathBindings(s string) ([]string, error) {
	return parseBindings("pathBindings", s, pathRE(), "must be a comma-separated list of paths such as topology/pod-1/paths-101/pathep-[eth1/14], each once")
}

// ParseNodeBindings parses a comma-separated list; empty is none. The error is
// of kind ErrInvalid.
func ParseNodeBindings(s string) ([]string, error) {
	return parseBindings("nodeBindings", s, nodeRE(), "must be a comma-separated list of nodes such as topology/pod-1/node-101, each once")
}

func parseBindings(field, s string, re *regexp.Regexp, want string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	list := strings.Split(s, ",")
	if len(list) > MaxBindings {
		return nil, InvalidField(field, len(list), fmt.Sprintf("must be at most %d", MaxBindings))
	}
	seen := make(map[string]bool)
	for _, b := range list {
		if !re.MatchString(b) || seen[b] {
			return nil, InvalidField(field, s, want)
		}
		seen[b] = true
	}
	return list, nil
}

// ParseYesNo parses a switch; empty is what it is by default. The error is of
// kind ErrInvalid.
func ParseYesNo(field, s string, byDefault bool) (bool, error) {
	switch s {
	case "":
		return byDefault, nil
	case "yes":
		return true, nil
	case "no":
		return false, nil
	}
	return false, InvalidField(field, s, "must be yes or no")
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (g AciGw) Validate() error {
	if len(g.PhysicalDomain) > MaxPhysicalDomain || !domainRE().MatchString(g.PhysicalDomain) {
		return InvalidField("physicalDomain", g.PhysicalDomain, "must be at most 128 letters, digits or any of _.:-")
	}
	if _, err := ParsePathBindings(strings.Join(g.PathBindings, ",")); err != nil {
		return err
	}
	_, err := ParseNodeBindings(strings.Join(g.NodeBindings, ","))
	return err
}
