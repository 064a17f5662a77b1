package ebpf

import (
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// doomedGrace is how long a version's rules stay after the last set referred
// to it: a packet may still be looking them up.
const doomedGrace = 100 * time.Millisecond

func (p *pass) putSets() error {
	defer p.forgetRules()
	for c := range p.want.PolicySets.Diff(p.last.PolicySets) {
		if !c.Has {
			continue
		}
		delete(p.refused, c.Key)
		err := p.putSet(c.Key, c.New)
		if err == nil {
			continue
		}
		if fatal(err) {
			return err
		}
		p.refused[c.Key] = err
		p.problem(fmt.Sprintf("policy %d", c.Key), err)
	}
	return nil
}

// maxRuleIDs bounds the memory for ids of rules that are gone: counters and
// decisions may still speak of them.
const maxRuleIDs = 20000

// learnRules remembers the ids behind the numbers of counters.
func (d *Driver) learnRules(s *desired.PolicySet) {
	for _, tiers := range [][]desired.Tier{s.In, s.Out} {
		for _, t := range tiers {
			for id := range t.Rules.All() {
				d.ruleIDs[ruleNumber(id)] = id
			}
		}
	}
}

// forgetRules leaves only the rules that are wanted when twice as many, and more
// than maxRuleIDs, have gathered.
func (p *pass) forgetRules() {
	if len(p.ruleIDs) <= max(maxRuleIDs, 2*p.rulesKept) {
		return
	}
	defer func() { p.rulesKept = len(p.ruleIDs) }()
	clear(p.ruleIDs)
	for _, s := range p.want.PolicySets.All() {
		p.learnRules(s)
	}
}

// putSet writes a set's entries under a new version and then turns the set over
// to it, so that every packet meets either the old rules or the new ones.
func (p *pass) putSet(id desired.PolicySetID, s *desired.PolicySet) error {
	if id == 0 || s.ID != id {
		return model.Errorf(model.ErrInvalid, "policy set %d calls itself %d", id, s.ID)
	}
	p.learnRules(s)
	old, had := p.sets.have[uint32(id)]
	if had && old.Hash == hashSet(s) {
		return nil
	}
	c, err := compileSet(s)
	if err != nil {
		return err
	}
	if err := p.room(c); err != nil {
		return err
	}
	p.version++
	v := p.version
	keys := p.ofVersion(v)
	err = func() error {
		for k, x := range c.rules {
			k.Version = v
			keys.rules = append(keys.rules, k)
			if err := p.rules.put(k, x); err != nil {
				return err
			}
		}
		for k, x := range c.cidrs {
			k.Version = v
			keys.cidrs = append(keys.cidrs, k)
			if err := p.cidrs.put(k, x); err != nil {
				return err
			}
		}
		c.set.Version = v
		if err := p.sets.put(uint32(id), c.set); err != nil {
			return err
		}
		if had || p.scratch {
			p.w.global++ // the ports of a new one turn themselves
		}
		return nil
	}()
	switch {
	case err != nil:
		p.doom(v)
	case had:
		p.doom(old.Version)
	}
	return err
}

// room refuses what does not fit before anything is written.
func (p *pass) room(c *compiledSet) error {
	full := func() error {
		if n := len(p.rules.have) + len(c.rules); n > int(p.rules.m.MaxEntries()) {
			return model.Errorf(model.ErrExhausted, "its rules need %d entries, and %d of %d are taken: fewer ports for nested address ranges, or netplugin --ebpf-map-sizes rules=N", len(c.rules), len(p.rules.have), p.rules.m.MaxEntries())
		}
		if n := len(p.cidrs.have) + len(c.cidrs); n > int(p.cidrs.m.MaxEntries()) {
			return model.Errorf(model.ErrExhausted, "its addresses need %d entries, and %d of %d are taken: netplugin --ebpf-map-sizes cidrs=N", len(c.cidrs), len(p.cidrs.have), p.cidrs.m.MaxEntries())
		}
		return nil
	}
	if full() == nil {
		return nil
	}
	p.purgeDoomed(time.Now())
	return full()
}

func (d *Driver) doom(version uint32) {
	d.doomed = append(d.doomed, doomedVersion{version, time.Now()})
}

// purgeDoomed removes the entries of versions that nothing has referred to since before.
func (d *Driver) purgeDoomed(before time.Time) {
	fault, changes := d.w.fault, d.w.changes
	d.w.fault = nil
	defer func() { d.w.fault, d.w.changes = fault, changes }()
	keep := d.doomed[:0]
	for _, v := range d.doomed {
		if v.since.After(before) {
			keep = append(keep, v)
			continue
		}
		ok := true
		keys := d.ofVersion(v.version)
		for _, k := range keys.rules {
			ok = d.rules.del(k) == nil && ok
		}
		for _, k := range keys.cidrs {
			ok = d.cidrs.del(k) == nil && ok
		}
		if !ok {
			keep = append(keep, v)
			continue
		}
		delete(d.byVer, v.version)
	}
	d.doomed = keep
}

func (p *pass) removeSets() error {
	for id, s := range p.sets.have {
		if _, ok := p.want.PolicySets.Get(desired.PolicySetID(id)); ok {
			continue
		}
		delete(p.refused, desired.PolicySetID(id))
		if err := p.sets.del(id); err != nil {
			return err
		}
		p.doom(s.Version)
	}
	return nil
}
