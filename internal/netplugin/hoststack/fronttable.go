package hoststack

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// element is one element of a set or map: its key, by its set's name.
type element struct{ in, key string }

// wantedElement is what is wanted of an element: its value (empty in sets), and by how many frontends.
// Values are a target's address and port, or of a range its last key.
type wantedElement struct {
	to string
	by int
}

// frontendTable is the table of one family: what is wanted of it, and what it is.
//
// What a service needs are elements of sets and maps that are always there, so that its
// change costs what it changes: of rules, and of elements that lead to chains, the kernel
// would check all ways through the table. Only how long clients stay is in rules, for all
// services of the same time.
type frontendTable struct {
	table     *nftables.Table
	at        string     // Place.Device
	source    netip.Addr // of Place.Sources
	frontends int        // without any there is no table
	wanted    map[element]wantedElement
	dirty     map[element]bool // that may not be as wanted
	have      map[element]string
	times     map[string]int  // how many elements sets of times have that are there
	staleMaps map[string]bool // maps of clients that may have some of former targets
	made      bool            // the table is there, with all that never changes
	there     bool            // some table of the name is there
}

func newFrontendTable(family nftables.TableFamily) *frontendTable {
	t := &frontendTable{
		table:  &nftables.Table{Family: family, Name: ServicesTable},
		wanted: map[element]wantedElement{}, dirty: map[element]bool{}, staleMaps: map[string]bool{},
	}
	t.empty()
	return t
}

// empty notes that the kernel has nothing of the table.
func (t *frontendTable) empty() {
	t.have, t.times, t.made, t.there = map[element]string{}, map[string]int{}, false, false
}

func (t *frontendTable) v6() bool { return t.table.Family == nftables.TableFamilyIPv6 }

// want adds to how often an element is wanted.
func (t *frontendTable) want(e element, to string, by int) {
	h := t.wanted[e]
	h.by += by
	if by > 0 {
		h.to = to
	}
	if t.dirty[e] = true; h.by == 0 {
		delete(t.wanted, e)
	} else {
		t.wanted[e] = h
	}
}

// contribute adds, or takes away, what a front wants.
func (t *frontendTable) contribute(at FrontendAddr, f *Frontend, by int) {
	t.frontends += by
	key, kind := keyOf(at), kindOf(at)
	if at.Addr.IsUnspecified() {
		t.want(element{setNodePorts, key}, "", by)
	} else {
		t.want(element{setAddrs, string(at.Addr.AsSlice())}, "", by)
	}
	from := slices.Concat(disjoint(f.Sources, t.v6()))
	if len(f.Sources) > 0 && !slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		t.want(element{setLimited + kind, key}, "", by)
		for _, p := range from {
			t.want(element{setFrom + kind, key + string(p.Addr().AsSlice())}, key+string(lastOf(p).AsSlice()), by)
		}
	}
	for _, c := range []Choice{f.Own, f.Outside} {
		for _, to := range c.Targets {
			if in := [...]string{OtherHost: setOtherHosts, External: setExternal}[to.Location]; in != "" {
				t.want(element{in, keyOf(FrontendAddr{to.Addr(), at.Proto, to.Port()})}, "", by)
			}
		}
	}
	if at.Addr.IsUnspecified() && (f.Own.refuses() || f.Outside.refuses()) {
		t.want(element{setClosed, key}, "", by)
	}
	// Others are led as this host's own, unless something is said of them.
	alike := slices.EqualFunc(f.Own.Targets, f.Outside.Targets, func(a, b Target) bool { return a.AddrPort == b.AddrPort })
	if !alike {
		t.want(element{setBypass + kind, key}, "", by)
	}
	for _, side := range []string{sideOwn, sideOutside} {
		c, in := f.of(side), side+kind
		if len(c.Targets) == 0 {
			if c.Drop {
				t.want(element{in + suffixDrop, key}, "", by)
			}
			continue
		}
		if f.Affinity > 0 {
			t.want(element{in + suffixAffinity, key}, "", by)
			t.want(element{timeOf(in, f.Affinity), key}, "", by)
		}
		if alike && side == sideOutside {
			continue // they are there
		}
		places := placesFor(len(c.Targets))
		for i := range places - places%len(c.Targets) {
			t.want(element{mapOf(in, places), key + index(i)}, targetKey(c.Targets[i%len(c.Targets)]), by)
		}
	}
}

// refuses reports whether clients are refused.
func (c Choice) refuses() bool { return len(c.Targets) == 0 && !c.Drop }
