package compile

import "github.com/contiv/netplugin/v2/internal/model"

// subjects groups the ports of this host to whom the same policies apply.
//
// Takes: ports from placement.
// Gives: subjects to groups and plans; as a step, it removes those without ports; marks
// subjects, groups, tenants.
type subjects struct {
	all map[subjectKey]*subject

	inv           *inventory
	sets          *policySets
	problems      *problems
	dirtySubjects *marks[*subject]
	dirtyGroups   *marks[*group]
	dirtyTenants  *marks[*tenant]
}

// move puts a local port among those whom the same policies apply to, and
// takes it from where it was.
func (sj *subjects) move(e *endpoint, port bool) {
	var s *subject
	if port {
		s = sj.of(e)
		sj.dirtySubjects.add(s)
	}
	if s == e.subject {
		return
	}
	if e.subject != nil {
		delete(e.subject.ports, e)
		sj.dirtySubjects.add(e.subject)
	}
	if s != nil {
		s.ports.add(e)
	}
	e.subject = s
}

func (sj *subjects) of(e *endpoint) *subject {
	k := subjectKey{e.Key.Network, e.Group, e.identity(), e.OfHost()}
	return lookup(sj.all, k, func() *subject {
		s := &subject{key: k, net: e.net, ports: set[*endpoint]{}}
		t := sj.inv.tenant(k.network.Tenant)
		addTo(t.subjects, k.identity, s)
		if k.group != "" {
			s.group = sj.inv.group(model.GroupKey{Tenant: t.name, Name: k.group})
			s.group.subjects.add(s)
			sj.dirtyGroups.add(s.group)
		}
		return s
	})
}

// compile forgets the changed subjects that have no ports any more.
func (sj *subjects) compile() {
	for s := range sj.dirtySubjects.of {
		if len(s.ports) > 0 {
			continue
		}
		sj.dirtySubjects.remove(s)
		if sj.all[s.key] != s {
			continue
		}
		delete(sj.all, s.key)
		t := sj.inv.tenant(s.key.network.Tenant)
		removeFrom(t.subjects, s.key.identity, s)
		sj.dirtyTenants.add(t)
		if s.group != nil {
			delete(s.group.subjects, s)
			sj.dirtyGroups.add(s.group)
		}
		sj.problems.set(s.problemObject(), "")
		sj.sets.use(s, nil)
	}
}
