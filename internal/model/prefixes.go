package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// MaxPrefixes bounds a list of prefixes.
const MaxPrefixes = 256

// Prefixes is a sorted list of masked prefixes.
type Prefixes []netip.Prefix

// noPrefixes stands for the empty list, since a list that is left out changes nothing.
const noPrefixes = "none"

// ParsePrefixes reads a list of prefixes; the one entry "none" is the empty list, and no
// entry is nil. The error is of kind ErrInvalid.
func ParsePrefixes(field string, texts []string) (Prefixes, error) {
	if texts == nil {
		return nil, nil
	}
	if slices.Equal(texts, []string{noPrefixes}) {
		return Prefixes{}, nil
	}
	out := Prefixes{}
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Masked() != p || p.Addr().Is4In6() {
			return nil, InvalidField(field, s, "must be a prefix without bits beyond its length, such as 10.1.0.0/16, or none")
		}
		out = append(out, p)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	out = slices.Compact(out)
	return out, out.validate(field)
}

func (l Prefixes) validate(field string) error {
	if len(l) > MaxPrefixes {
		return InvalidField(field, len(l), fmt.Sprintf("must be at most %d prefixes", MaxPrefixes))
	}
	for i, p := range l {
		if !p.IsValid() || p.Masked() != p || i > 0 && l[i-1].Compare(p) >= 0 {
			return InvalidField(field, p, "must be masked prefixes, sorted, each once")
		}
	}
	return nil
}

// Contains reports whether one of the prefixes holds all of p.
func (l Prefixes) Contains(p netip.Prefix) bool {
	return slices.ContainsFunc(l, func(x netip.Prefix) bool { return x.Bits() <= p.Bits() && x.Contains(p.Addr()) })
}

// Strings writes the list as ParsePrefixes reads it; nil for an empty one.
func (l Prefixes) Strings() (out []string) {
	for _, p := range l {
		out = append(out, p.String())
	}
	return out
}
