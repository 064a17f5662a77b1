package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// profiles has the net profiles, and the groups whose records name them.
//
// Takes: net profile rows; groups, the own rates of endpoints.
// Gives: Bandwidth, a port at a time, to endpointOutput; marks groups, endpoints.
type profiles struct {
	rows  map[model.NetProfileKey]*model.NetProfile
	users map[model.NetProfileKey]set[*group]

	out         *output
	problems    *problems
	dirtyGroups *marks[*group]
	dirtyEps    *marks[*endpoint]
}

func (pf *profiles) put(k model.NetProfileKey, rec *model.NetProfile) {
	if rec == nil {
		delete(pf.rows, k)
	} else {
		pf.rows[k] = rec
	}
	for g := range pf.users[k] {
		pf.touchRates(g)
	}
}

// profileOf is the key of the net profile that a group's record names.
func profileOf(rec *model.Group) (model.NetProfileKey, bool) {
	if rec == nil || rec.NetProfile == "" {
		return model.NetProfileKey{}, false
	}
	return model.NetProfileKey{Tenant: rec.Key.Tenant, Name: rec.NetProfile}, true
}

// follow enters a group's change into the index, and its ports' rates.
func (pf *profiles) follow(g *group, old, now *model.Group) {
	was, had := profileOf(old)
	is, has := profileOf(now)
	if was == is {
		return
	}
	if had {
		if delete(pf.users[was], g); len(pf.users[was]) == 0 {
			delete(pf.users, was)
		}
	}
	if has {
		if pf.users[is] == nil {
			pf.users[is] = set[*group]{}
		}
		pf.users[is].add(g)
	}
	pf.touchRates(g)
}

// touchRates has a group's ports and problems looked at again.
func (pf *profiles) touchRates(g *group) {
	pf.dirtyGroups.add(g)
	for s := range g.subjects {
		for e := range s.ports {
			pf.dirtyEps.add(e)
		}
	}
}

// setProblem tells of a net profile that a group with ports here names and that is
// not known.
func (pf *profiles) setProblem(g *group, here bool) {
	text := ""
	if k, named := profileOf(g.rec); named && here && pf.rows[k] == nil {
		text = "its net profile " + k.Name + " is unknown: what its endpoints here send and receive is neither limited nor marked"
	}
	pf.problems.set("net profile of group "+g.key.String(), text)
}

// write writes what limits a port.
func (pf *profiles) write(e *endpoint) {
	r := pf.rateOf(e)
	if r == (desired.Rate{}) {
		pf.out.Bandwidth = pf.out.Bandwidth.Delete(e.ifName)
		return
	}
	pic := &r
	if old, ok := pf.out.before.Bandwidth.Get(e.ifName); ok && *old == r {
		pic = old
	}
	pf.out.Bandwidth = pf.out.Bandwidth.Set(e.ifName, pic)
}

func (pf *profiles) rateOf(e *endpoint) (r desired.Rate) {
	if e.subject != nil && e.subject.group != nil {
		k, _ := profileOf(e.subject.group.rec)
		if p := pf.rows[k]; p != nil {
			r = desired.Rate{Send: limitOf(p.Bandwidth, p.Burst), Receive: limitOf(p.ReceiveBandwidth, p.ReceiveBurst), DSCP: uint8(p.DSCP)}
		}
	}
	r.Send, r.Receive = lowerRate(r.Send, e.Rates.Send), lowerRate(r.Receive, e.Rates.Receive)
	return r
}

// lowerRate is the lower of a group's limit and an endpoint's own, with its burst.
func lowerRate(group desired.Limit, own model.Rate) desired.Limit {
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
