package ebpf

import (
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ruleIndex knows of one set which rules stand at each key, so that a change
// costs what it touches. The map has who decides there.
//
// A change is written beside what is in force, under the next generation, and
// put in force by one write of the set's header. So an entry knows two rules: a
// packet that began under a generation finds what decided then, as long as no
// second change takes the place of what it looks for (settled).
type ruleIndex struct {
	t        *ruleTable
	head     policySet             // that is in force
	set      *desired.PolicySet    // that it holds; nil = none yet
	settled  uint64                // no packet is under way that began under an earlier generation
	switched time.Time             // when head was written
	more     map[ruleKey][]rank    // who else stands at a key, best first
	peers    map[ruleKey][]portUse // by a peer's own key: lengths of port prefixes that it has rules for
	lengths  map[lengthKey]int     // peers by length
	stages   map[stageKey]*stage   // what is in use, by tier
	logs     int                   // rules with Log
	stale    map[ruleKey]bool      // entries that nothing needs any more, once it is settled
}

// portUse is how many rules' keys of a peer have a bit of its mask.
type portUse struct {
	bit uint8 // anyProtocol = of no bit
	n   int32
}

type stageKey struct{ dir, tier uint8 }

type lengthKey struct {
	stageKey
	kind, bits uint8
	scoped     bool
}

func newRuleIndex(t *ruleTable, head policySet) *ruleIndex {
	return &ruleIndex{
		t: t, head: head, switched: time.Now(), more: map[ruleKey][]rank{}, peers: map[ruleKey][]portUse{},
		lengths: map[lengthKey]int{}, stages: map[stageKey]*stage{}, stale: map[ruleKey]bool{},
	}
}

// at is who decides under a generation.
func (r rule) at(generation uint64) rank {
	i := 0
	if r.Generation <= generation {
		i = 1
	}
	return rank{r.Weight[i], r.ID[i]}
}

// peer is the key of the peer that a key belongs to.
func (k ruleKey) peer() ruleKey {
	k.Proto, k.PortBits, k.Port = 0, anyProtocol, 0
	return k
}

// mask tells which port prefixes a peer has rules for.
func (x *ruleIndex) mask(peer ruleKey) (m uint64) {
	for _, u := range x.peers[peer] {
		if u.bit != anyProtocol {
			m |= 1 << u.bit
		}
	}
	return m
}

// use counts a key of a peer, or with by -1 one less.
func (x *ruleIndex) use(peer ruleKey, bit uint8, by int32) {
	list := x.peers[peer]
	i := slices.IndexFunc(list, func(u portUse) bool { return u.bit == bit })
	if i < 0 {
		i, list = len(list), append(list, portUse{bit: bit})
		if len(list) == 1 {
			x.useLength(peer, 1)
		}
	}
	if list[i].n += by; list[i].n == 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(x.peers, peer)
		x.useLength(peer, -1)
		return
	}
	x.peers[peer] = list
}

// useLength counts a peer by what the programs must ask for to find it.
func (x *ruleIndex) useLength(peer ruleKey, by int) {
	k := lengthKey{stageKey{peer.Dir, peer.Tier}, peer.Kind, peer.Bits, peer.Scope != 0}
	s := x.stages[k.stageKey]
	if s == nil {
		s = &stage{Tier: peer.Tier}
		x.stages[k.stageKey] = s
	}
	word, bit := 0, k.bits
	if k.kind == peerCIDR6 {
		word, bit = 1+int(k.bits)/64, k.bits%64
	}
	if k.scoped {
		word += lengthWords
	}
	address := k.kind == peerCIDR4 || k.kind == peerCIDR6
	kind := lengthKey{stageKey: k.stageKey, kind: k.kind, bits: 0xff}
	for _, c := range []lengthKey{k, kind} { // of the length, and of all of the kind
		n := x.lengths[c] + by
		if x.lengths[c] = n; n == 0 {
			delete(x.lengths, c)
		}
		switch {
		case c == kind && n > 0:
			s.Kinds |= 1 << k.kind
		case c == kind:
			s.Kinds &^= 1 << k.kind
		case address && n > 0:
			s.Lengths[word] |= 1 << bit
		case address:
			s.Lengths[word] &^= 1 << bit
		}
	}
}

// ruleEdit is a change of a set under way: who decides where from now on.
type ruleEdit struct {
	*ruleIndex
	touched map[ruleKey]rank
	masks   map[ruleKey]bool // peers whose mask may have changed
	learn   func(*desired.Rule)
	anew    bool // what the map holds is no rule of the set's yet
}

func (x *ruleIndex) edit(learn func(*desired.Rule)) *ruleEdit {
	return &ruleEdit{x, map[ruleKey]rank{}, map[ruleKey]bool{}, learn, x.set == nil}
}

// winner is who decides at a key so far.
func (e *ruleEdit) winner(k ruleKey) rank {
	if r, ok := e.touched[k]; ok || e.anew {
		return r
	}
	return e.t.of[k.Instance][k].at(e.head.Generation)
}

func compareRanks(a, b rank) int {
	switch {
	case a.outranks(b):
		return -1
	case b.outranks(a):
		return 1
	}
	return 0
}

func (e *ruleEdit) add(k ruleKey, bit uint8, r rank) {
	e.use(k.peer(), bit, 1)
	e.masks[k.peer()] = true
	loser := r
	if cur := e.winner(k); cur.weight == 0 || r.outranks(cur) {
		e.touched[k] = r
		if loser = cur; cur.weight == 0 {
			return
		}
	}
	list := e.more[k]
	i, _ := slices.BinarySearchFunc(list, loser, compareRanks)
	e.more[k] = slices.Insert(list, i, loser)
}

func (e *ruleEdit) remove(k ruleKey, bit uint8, r rank) {
	e.use(k.peer(), bit, -1)
	e.masks[k.peer()] = true
	list := e.more[k]
	if e.winner(k) == r {
		if e.touched[k] = (rank{}); len(list) == 0 {
			return
		}
		e.touched[k] = list[0]
		list = list[1:]
	} else if i, ok := slices.BinarySearchFunc(list, r, compareRanks); ok {
		list = slices.Delete(list, i, i+1)
	}
	if e.more[k] = list; len(list) == 0 {
		delete(e.more, k)
	}
}

// each calls fn for every key of a rule, as often as the rule stands there: once.
func (e *ruleEdit) each(at stageKey, r *desired.Rule, peers []ruleKey, fn func(k ruleKey, bit uint8, r rank)) {
	rank := rankOf(r)
	list := portKeys(r.Ports)
	for _, k := range peers {
		k.Instance, k.Dir, k.Tier = e.head.Instance, at.dir, at.tier
		for _, p := range list {
			k.Proto, k.PortBits, k.Port = p.proto, p.bits, p.port
			bit := uint8(anyProtocol)
			if p.bits != anyProtocol {
				bit = uint8(p.maskBit())
			}
			fn(k, bit, rank)
		}
	}
}

// peersOf are the peers of a rule, each once. It refuses what no map has room for.
func (e *ruleEdit) peersOf(r *desired.Rule) ([]ruleKey, error) {
	var out []ruleKey
	peerKeys(r, func(k ruleKey) { out = append(out, k) })
	slices.SortFunc(out, compareKeys)
	out = slices.Compact(out)
	if !r.AnyPeer {
		for id := range r.Identities.All() {
			out = append(out, identityKey(id))
		}
	}
	if n := len(out) * len(portKeys(r.Ports)); n > e.t.most {
		return nil, model.Errorf(model.ErrExhausted, "rule %s: %w", r.ID, e.t.full(n))
	}
	return out, nil
}

// compareKeys orders peers.
func compareKeys(a, b ruleKey) int {
	for _, c := range [][2]uint64{
		{uint64(a.Kind), uint64(b.Kind)},
		{uint64(a.Scope), uint64(b.Scope)},
		{uint64(a.Bits), uint64(b.Bits)},
		{a.Peer[0], b.Peer[0]},
		{a.Peer[1], b.Peer[1]},
	} {
		if c[0] != c[1] {
			if c[0] < c[1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// change replaces a rule of a tier; nil = there is none.
func (e *ruleEdit) change(at stageKey, old, now *desired.Rule) error {
	if old != nil && old.Log {
		e.logs--
	}
	if now != nil && now.Log {
		e.logs++
	}
	if old != nil && now != nil && sameBut(old, now) {
		for id, has := range now.Identities.Diff(old.Identities) {
			fn := e.remove
			if has {
				fn = e.add
			}
			e.each(at, now, []ruleKey{identityKey(id)}, fn)
		}
		return nil
	}
	if old != nil {
		peers, err := e.peersOf(old)
		if err != nil {
			return err
		}
		e.each(at, old, peers, e.remove)
	}
	if now != nil {
		peers, err := e.peersOf(now)
		if err != nil {
			return err
		}
		e.learn(now)
		e.each(at, now, peers, e.add)
	}
	return nil
}

// sameBut reports whether two rules differ in their identities at most, as far as
// the map is concerned.
func sameBut(a, b *desired.Rule) bool {
	return rankOf(a) == rankOf(b) && a.AnyPeer == b.AnyPeer && !a.AnyPeer && slices.Equal(a.Ports, b.Ports) &&
		slices.EqualFunc(a.CIDRs, b.CIDRs, desired.CIDR.Equal)
}

// to makes the set s of the one that the index holds.
func (e *ruleEdit) to(s *desired.PolicySet) error {
	old, now := rulesOf(e.set), rulesOf(s)
	for at := range old {
		if _, ok := now[at]; !ok {
			now[at] = desired.Rules{}
		}
	}
	for at, rules := range now {
		for c := range rules.Diff(old[at]) {
			if err := e.change(at, c.Old, c.New); err != nil {
				return err
			}
		}
	}
	e.set = s
	return nil
}

// rulesOf are the rules of a set by where they are found.
func rulesOf(s *desired.PolicySet) map[stageKey]desired.Rules {
	out := map[stageKey]desired.Rules{}
	if s == nil {
		return out
	}
	for dir, tiers := range [][]desired.Tier{dirIn: s.In, dirOut: s.Out} {
		for i := range tiers {
			out[stageKey{uint8(dir), tierKey(tiers, i)}] = tiers[i].Rules
		}
	}
	return out
}

// entry is one write to the map of rules.
type entry struct {
	k ruleKey
	v rule
}

// plan is what is to be written, under the next generation, and how many of it
// are new entries. unsettled tells that a packet under way may still need what
// would be overwritten.
func (e *ruleEdit) plan() (out []entry, fresh int, unsettled bool) {
	generation := e.head.Generation
	have := e.t.of[e.head.Instance]
	for k := range e.masks {
		e.touched[k] = e.winner(k)
	}
	if e.anew {
		for k := range have {
			e.touched[k] = e.winner(k)
		}
	}
	for k, r := range e.touched {
		old, had := have[k]
		cur, v := old.at(generation), old
		pending := old.Generation > generation // of a change that broke off, and is in force for no packet
		if r != cur || pending || !had {
			v = rule{Generation: generation + 1, ID: [2]uint64{cur.id, r.id}, Weight: [2]uint32{cur.weight, r.weight}}
		}
		if k.PortBits == anyProtocol {
			v.Ports = old.Ports | e.mask(k)
		}
		switch {
		case !had && r.weight == 0 && len(e.peers[k]) == 0, had && v == old:
			continue
		case !had:
			fresh++
		case r != cur && !pending && old.Generation > e.settled:
			unsettled = true
		}
		out = append(out, entry{k, v})
	}
	return out, fresh, unsettled
}

// collectUnneeded notes which entries of a change that is in force nothing needs.
func (e *ruleEdit) collectUnneeded() {
	for k, r := range e.touched {
		if r.weight == 0 || k.PortBits == anyProtocol {
			if _, ok := e.t.of[k.Instance][k]; ok && !e.isFullyNeeded(k) {
				e.stale[k] = true
			}
		}
	}
}

// isFullyNeeded reports whether an entry is all needed.
func (x *ruleIndex) isFullyNeeded(k ruleKey) bool {
	v := x.t.of[k.Instance][k]
	if k.PortBits != anyProtocol {
		return v.at(x.head.Generation).weight != 0
	}
	return len(x.peers[k]) > 0 && v.Ports == x.mask(k)
}

// removeUnneeded takes out what nothing needs; no packet is under way that began before
// the generation in force.
func (x *ruleIndex) removeUnneeded() error {
	x.settled = x.head.Generation
	for k := range x.stale {
		var err error
		switch v := x.t.of[k.Instance][k]; {
		case x.isFullyNeeded(k):
		case k.PortBits == anyProtocol && len(x.peers[k]) > 0:
			v.Ports = x.mask(k)
			err = x.t.put(k, v)
		default:
			err = x.t.drop(k)
		}
		if err != nil {
			return err
		}
		delete(x.stale, k)
	}
	return nil
}

// header is a set's header under the next generation.
func (e *ruleEdit) header(s *desired.PolicySet) policySet {
	h := policySet{Generation: e.head.Generation + 1, Instance: e.head.Instance}
	if e.logs > 0 || len(s.Audits) > 0 {
		h.Audits = 1
	}
	for dir, tiers := range [][]desired.Tier{dirIn: s.In, dirOut: s.Out} {
		h.Tiers[dir] = uint8(len(tiers))
		for i := range tiers {
			at := stageKey{uint8(dir), tierKey(tiers, i)}
			g := stage{Tier: at.tier}
			if u := e.stages[at]; u != nil {
				g = *u
			}
			g.Action = toAction(tiers[i].Default)
			h.Stages[dir][i] = g
		}
	}
	return h
}
