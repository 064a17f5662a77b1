package hostnet

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
)

// element is one element of a set or map: its key, by its set's name.
type element struct{ in, key string }

// held is what is wanted of an element: its value (empty in sets), and by how many fronts.
// Values are where verdict maps lead, a target's address and port, or of a range its last
// key.
type held struct {
	to string
	by int
}

// What verdict maps lead to beside chains' names.
const (
	toDrop   = "drop"
	toReturn = "return" // to nobody: what is led nowhere is refused
)

// choosing is what a chain for clients that stay does: it drops other clients than
// sources', and leads to one of the targets.
type choosing struct {
	v6       bool
	sources  []netip.Prefix
	targets  []Target
	affinity time.Duration
	stay     string // the map of which client is where
	by       int    // wanted elements that lead here
}

// frontTable is the table of one family: what is wanted of it, and what it is.
//
// What a service needs are elements of sets and maps that are always there, so that its
// change costs what it changes: of rules, and of elements that lead to chains, the kernel
// would check all ways through the table. Only a service whose clients stay (affinity)
// has chains.
type frontTable struct {
	table  *nftables.Table
	at     string     // Place.Device
	source netip.Addr // of Place.Sources
	fronts int        // without any there is no table
	wanted map[element]held
	chains map[string]*choosing // wanted
	dirty  map[element]bool     // that may not be as wanted
	have   map[element]string
	leads  map[string]int             // how many elements that are there lead to a chain
	is     map[string]bool            // chains that are there, of clients that stay
	stays  map[string]bool            // maps of clients that are there
	parts  map[string]map[string]bool // of such maps: chains that fill it, that are there
	users  map[string]map[string]bool // of such maps: wanted chains that read it
	tidy   map[string]bool            // such maps that may have no user, or clients of former targets
	made   bool                       // the table is there, with all that never changes
	there  bool                       // some table of the name is there
	setID  uint32                     // the last one, of sets that belong to rules; the library numbers others from 1 on
}

func newFrontTable(family nftables.TableFamily) *frontTable {
	t := &frontTable{
		table:  &nftables.Table{Family: family, Name: FrontsTable},
		wanted: map[element]held{}, chains: map[string]*choosing{}, dirty: map[element]bool{},
		users: map[string]map[string]bool{}, tidy: map[string]bool{}, setID: 1 << 24,
	}
	t.empty()
	return t
}

// empty notes that the kernel has nothing of the table.
func (t *frontTable) empty() {
	t.have, t.leads, t.made, t.there = map[element]string{}, map[string]int{}, false, false
	t.is, t.stays, t.parts = map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}
}

func (t *frontTable) v6() bool { return t.table.Family == nftables.TableFamilyIPv6 }

// want adds to how often an element is wanted.
func (t *frontTable) want(e element, to string, by int) {
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
func (t *frontTable) contribute(at FrontAt, f *Front, by int) {
	t.fronts += by
	key, kind := keyOf(at), kindOf(at)
	if at.Addr.IsUnspecified() {
		t.want(element{setNodePorts, key}, "", by)
	} else {
		t.want(element{setAddrs, string(at.Addr.AsSlice())}, "", by)
	}
	from := slices.Concat(disjoint(f.Sources, t.v6()))
	limited := len(f.Sources) > 0 && !slices.ContainsFunc(from, func(p netip.Prefix) bool { return p.Bits() == 0 })
	nobody := limited && len(from) == 0
	for _, c := range []Choice{f.Own, f.Outside} {
		for _, to := range c.Targets {
			if in := [...]string{Elsewhere: setElsewhere, Beyond: setBeyond}[to.Where]; in != "" {
				t.want(element{in, keyOf(FrontAt{to.Addr(), at.Proto, to.Port()})}, "", by)
			}
		}
	}
	if at.Addr.IsUnspecified() && (f.Own.refuses() || f.Outside.refuses()) {
		t.want(element{setClosed, key}, "", by)
	}
	if limited {
		for _, p := range from {
			t.want(element{setFrom + kind, key + string(p.Addr().AsSlice())}, key+string(lastOf(p).AsSlice()), by)
		}
	}
	// Others are led as this host's own, unless something is said of them.
	alike := slices.EqualFunc(f.Own.Targets, f.Outside.Targets, func(a, b Target) bool { return a.AddrPort == b.AddrPort })
	for _, side := range []struct {
		Choice
		name, otherwise string // otherwise = where to, unless own targets are meant
	}{{f.Own, sideOwn, ""}, {f.Outside, sideOutside, chainElse}} {
		apart := func(to string) { t.want(element{side.name + kind + suffixApart, key}, to, by) }
		own := side.otherwise == "" || alike
		switch {
		case len(side.Targets) > 0 && nobody, side.Silent && len(side.Targets) == 0:
			apart(toDrop)
		case len(side.Targets) == 0:
			if !own {
				apart(toReturn)
			}
		case f.Affinity > 0:
			name, what := chainOf(at, f, side.Choice)
			t.choose(name, what, by)
			apart(name)
		default:
			in := sideOwn + kind
			if !own {
				in = sideOutside + kind
			}
			switch {
			case own && limited:
				apart(chainFrom + kind)
			case limited:
				apart(chainFromElse + kind)
			case !own:
				apart(side.otherwise + kind)
			}
			if own && side.otherwise != "" {
				break // they are there
			}
			places := placesFor(len(side.Targets))
			for i := range places - places%len(side.Targets) {
				t.want(element{mapOf(in, places), key + index(i)}, targetKey(side.Targets[i%len(side.Targets)]), by)
			}
		}
	}
}

// refuses tells whether clients are refused.
func (c Choice) refuses() bool { return len(c.Targets) == 0 && !c.Silent }

// choose adds to how often a chain is wanted.
func (t *frontTable) choose(name string, what *choosing, by int) {
	if t.chains[name] == nil {
		t.chains[name] = what
		if t.users[what.stay] == nil {
			t.users[what.stay] = map[string]bool{}
		}
		t.users[what.stay][name] = true
	}
	if t.chains[name].by += by; t.chains[name].by > 0 {
		return
	}
	delete(t.chains, name)
	delete(t.users[what.stay], name)
	if len(t.users[what.stay]) == 0 {
		delete(t.users, what.stay)
	}
	t.tidy[what.stay] = true
}
