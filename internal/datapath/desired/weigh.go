package desired

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// CountDifferences is about how many entries of a data plane's tables differ between two
// versions of a set, either of which may be nil: peers times ports of the rules that
// came, went or changed. It costs what differs, and does not make the entries.
func CountDifferences(old, now *PolicySet) (n int) {
	if old == nil {
		old = &PolicySet{}
	}
	if now == nil {
		now = &PolicySet{}
	}
	for _, dir := range []model.Direction{model.In, model.Out} {
		for _, t := range now.Tiers(dir) {
			for c := range t.Rules.Diff(tierOf(old, dir, t.Tier).Rules) {
				n += countRule(c.Old, c.New)
			}
		}
		for _, t := range old.Tiers(dir) {
			if !slices.ContainsFunc(now.Tiers(dir), func(x Tier) bool { return x.Tier == t.Tier }) {
				for _, r := range t.Rules.All() {
					n += countRule(r, nil)
				}
			}
		}
	}
	return n
}

func countRule(old, now *Rule) (n int) {
	if old != nil && now != nil {
		with := *old
		if with.Identities = now.Identities; with.Equal(now) {
			for range now.Identities.Diff(old.Identities) {
				n++
			}
			return n * blocks(now.Ports)
		}
	}
	for _, r := range []*Rule{old, now} {
		if r != nil {
			n += peers(r) * blocks(r.Ports)
		}
	}
	return n
}

// peers is how many peers a rule names: a prefix with exceptions is one for each bit
// that an exception is longer.
func peers(r *Rule) int {
	if r.AnyPeer {
		return 1
	}
	n := r.Identities.Len()
	for _, c := range r.CIDRs {
		some := 0
		for _, x := range c.Except {
			some += max(0, x.Bits()-c.Prefix.Bits())
		}
		n += max(1, some)
	}
	return n
}

// blocks is into how many prefixes ports fall apart; one for any protocol.
func blocks(ports []model.PortMatch) (n int) {
	for _, p := range ports {
		if !p.Protocol.HasPorts() {
			n++
			continue
		}
		for lo, end := uint32(p.Lo), uint32(p.Hi)+1; lo < end; n++ {
			size := uint32(1)
			for lo&(2*size-1) == 0 && lo+2*size <= end {
				size *= 2
			}
			lo += size
		}
	}
	return max(1, n)
}
