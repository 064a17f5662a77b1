package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// profiles are the net profiles, and the groups whose records name them.
type profiles struct {
	recs  map[model.NetProfileKey]*model.NetProfile
	users map[model.NetProfileKey]set[*group]
}

func newProfiles() profiles {
	return profiles{map[model.NetProfileKey]*model.NetProfile{}, map[model.NetProfileKey]set[*group]{}}
}

// SetNetProfile records a net profile; the rates of its groups' ports follow.
func (c *Compiler) SetNetProfile(p model.NetProfile) { c.putNetProfile(p.Key, &p) }

// DeleteNetProfile forgets a net profile; ports of groups that still name it are not
// limited, which is a problem.
func (c *Compiler) DeleteNetProfile(k model.NetProfileKey) { c.putNetProfile(k, nil) }

func (c *Compiler) putNetProfile(k model.NetProfileKey, rec *model.NetProfile) {
	if rec == nil {
		delete(c.profiles.recs, k)
	} else {
		c.profiles.recs[k] = rec
	}
	for g := range c.profiles.users[k] {
		c.touchRates(g)
	}
}

// profileOf is the key of the net profile that a group's record names.
func profileOf(rec *model.Group) (model.NetProfileKey, bool) {
	if rec == nil || rec.NetProfile == "" {
		return model.NetProfileKey{}, false
	}
	return model.NetProfileKey{Tenant: rec.Key.Tenant, Name: rec.NetProfile}, true
}

// followProfile enters a group's change into the index, and its ports' rates.
func (c *Compiler) followProfile(g *group, old, now *model.Group) {
	was, had := profileOf(old)
	is, has := profileOf(now)
	if was == is {
		return
	}
	if had {
		if delete(c.profiles.users[was], g); len(c.profiles.users[was]) == 0 {
			delete(c.profiles.users, was)
		}
	}
	if has {
		if c.profiles.users[is] == nil {
			c.profiles.users[is] = set[*group]{}
		}
		c.profiles.users[is].add(g)
	}
	c.touchRates(g)
}

// touchRates has a group's ports and problems looked at again.
func (c *Compiler) touchRates(g *group) {
	c.dirtyGroups.add(g)
	for s := range g.subjects {
		for e := range s.ports {
			c.dirtyEps.add(e)
		}
	}
}

// profileProblem tells of a net profile that a group with ports here names and that is
// not known.
func (c *Compiler) profileProblem(g *group, here bool) {
	text := ""
	if k, named := profileOf(g.rec); named && here && c.profiles.recs[k] == nil {
		text = "its net profile " + k.Name + " is unknown: what its endpoints here send and receive is neither limited nor marked"
	}
	c.problems.set("net profile of group "+g.key.String(), text)
}

// putRate writes what limits a port.
func (c *Compiler) putRate(e *endpoint, before desired.Host) {
	r := c.rateOf(e)
	if r == (desired.Rate{}) {
		c.out.Bandwidth = c.out.Bandwidth.Delete(e.ifName)
		return
	}
	pic := &r
	if old, ok := before.Bandwidth.Get(e.ifName); ok && *old == r {
		pic = old
	}
	c.out.Bandwidth = c.out.Bandwidth.Set(e.ifName, pic)
}

func (c *Compiler) rateOf(e *endpoint) (r desired.Rate) {
	if e.subject != nil && e.subject.group != nil {
		k, _ := profileOf(e.subject.group.rec)
		if p := c.profiles.recs[k]; p != nil {
			r = desired.Rate{Send: limitOf(p.Bandwidth, p.Burst), Receive: limitOf(p.ReceiveBandwidth, p.ReceiveBurst), DSCP: uint8(p.DSCP)}
		}
	}
	r.Send, r.Receive = lower(r.Send, e.Rates.Send), lower(r.Receive, e.Rates.Receive)
	return r
}

// lower is the lower of a group's limit and an endpoint's own, with its burst.
func lower(group desired.Limit, own model.Rate) desired.Limit {
	if own.Bits == 0 || group.Bits > 0 && group.Bits <= own.Bits {
		return group
	}
	return desired.Limit{Bits: own.Bits, Burst: own.Burst}
}

// limitOf is a limit of a profile; a burst without one means nothing.
func limitOf(b model.Bandwidth, kilobytes int) desired.Limit {
	if b.Kbps == 0 {
		return desired.Limit{}
	}
	return desired.Limit{Bits: b.Kbps * 1000, Burst: uint64(kilobytes) * 1000}
}
