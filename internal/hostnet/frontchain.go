package hostnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
)

// chainOf is the name of the chain that leads clients which stay, and its contents; the
// name says them.
func chainOf(at FrontAt, f *Front, c Choice) (string, *choosing) {
	x := &choosing{v6: at.Addr.Is6(), sources: f.Sources, targets: c.Targets, affinity: f.Affinity, stay: "stay-" + digest(fmt.Sprintln(f.Group, c.Among))}
	what := []any{x.sources, x.affinity, x.stay}
	for _, t := range x.targets {
		what = append(what, t.AddrPort)
	}
	return "to-" + digest(fmt.Sprintln(what...)), x
}

// partOf is the name of the chain that remembers a client with a target.
func (x *choosing) partOf(t Target) string {
	return "part-" + digest(fmt.Sprintln(x.stay, x.affinity, t.AddrPort))
}

// rules is how many rules addChain makes.
func (x *choosing) rules() int {
	if x.drops() {
		return 4
	}
	return 3
}

// drops tells whether some clients are dropped.
func (x *choosing) drops() bool {
	return len(x.sources) > 0 && !slices.ContainsFunc(x.sources, func(p netip.Prefix) bool { return p.Bits() == 0 && p.Addr().Is6() == x.v6 })
}

// dynsetDelete takes an element away (linux/netfilter/nf_tables.h, NFT_DYNSET_OP_DELETE).
const dynsetDelete = 2

// addChain adds a wanted chain to a transaction.
//
// nft up to 1.1 aborts where what a map has given is a key, or what is put into a map. So
// whether a client's target is still one is not looked up: forgetTidy takes clients of
// others from the map. And a client is remembered in a chain of each target.
func (t *frontTable) addChain(c *nftables.Conn, name string) error {
	x := t.chains[name]
	m := chainMaker{t: t, c: c, chain: c.AddChain(&nftables.Chain{Name: name, Table: t.table}), x: x}
	t.is[name] = true
	if !t.stays[x.stay] {
		if err := c.AddSet(t.stayOf(x.stay), nil); err != nil {
			return err
		}
		t.stays[x.stay] = true
	}
	if x.drops() {
		if err := m.drop(); err != nil {
			return err
		}
	}
	for _, to := range x.targets {
		if part := x.partOf(to); !t.parts[x.stay][part] {
			m.addPart(part, to)
			t.hasPart(x.stay, part)
		}
	}
	return m.affine()
}

func (t *frontTable) hasPart(stay, part string) {
	if t.parts[stay] == nil {
		t.parts[stay] = map[string]bool{}
	}
	t.parts[stay][part] = true
}

// stayOf is a map of which client is where.
func (t *frontTable) stayOf(name string) *nftables.Set {
	return &nftables.Set{
		Table: t.table, Name: name, KeyType: t.addrType(), DataType: t.targetType(), IsMap: true, Dynamic: true, HasTimeout: true, Size: desired.MaxAffine,
	}
}

// chainMaker makes one chain. A client is in register 1.
type chainMaker struct {
	t     *frontTable
	c     *nftables.Conn
	chain *nftables.Chain
	x     *choosing
}

func (m *chainMaker) add(parts ...[]expr.Any) {
	m.c.AddRule(&nftables.Rule{Table: m.t.table, Chain: m.chain, Exprs: slices.Concat(parts...)})
}

// remember puts a target that stands in a register, or takes what is there away.
func (m *chainMaker) remember(op, register uint32) expr.Any {
	return &expr.Dynset{SrcRegKey: 1, SrcRegData: register, SetName: m.x.stay, Operation: op, Timeout: m.x.affinity}
}

// put puts a target into a register, and what follows it.
func (m *chainMaker) put(to Target, register uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: m.t.behind(register), Data: port(to.Port())},
	}
}

// addPart adds the chain that remembers a client with a target and leads it there, or
// returns where no more clients are remembered.
func (m *chainMaker) addPart(name string, to Target) {
	part := *m
	part.chain = m.c.AddChain(&nftables.Chain{Name: name, Table: m.t.table})
	part.add([]expr.Any{m.t.src().load()}, m.put(to, reg32Target),
		[]expr.Any{m.remember(dynsetDelete, reg32Target), m.remember(unix.NFT_DYNSET_OP_UPDATE, reg32Target)}, m.t.translate())
}

// affine leads a client to where it was; chooses by the client's address, and remembers;
// and only chooses where no more clients are remembered.
func (m *chainMaker) affine() error {
	src := m.t.src()
	// The time begins anew; the other target is only for a client whose time is over in
	// this very moment.
	const other = unix.NFT_REG32_04
	m.add([]expr.Any{
		src.load(), &expr.Lookup{SourceRegister: 1, SetName: m.x.stay, IsDestRegSet: true, DestRegister: reg32Target},
	}, m.put(m.x.targets[0], other), []expr.Any{m.remember(unix.NFT_DYNSET_OP_UPDATE, other)}, m.t.translate())
	hash := []expr.Any{src.load(), &expr.Hash{SourceRegister: 1, DestRegister: 1, Length: src.bytes, Modulus: uint32(len(m.x.targets)), Seed: 1, Type: expr.HashTypeJenkins}} //nolint:gosec // at most desired.MaxBackends
	parts, targets := m.anonymous(true), m.anonymous(true)
	parts.DataType, targets.DataType = nftables.TypeVerdict, m.t.targetType()
	var leads, all []nftables.SetElement
	for i, to := range m.x.targets {
		key := binary.NativeEndian.AppendUint32(nil, uint32(i)) //nolint:gosec // below desired.MaxBackends
		leads = append(leads, nftables.SetElement{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: m.x.partOf(to)}})
		all = append(all, nftables.SetElement{Key: key, Val: []byte(targetKey(to))})
	}
	for _, s := range []struct {
		*nftables.Set
		elements []nftables.SetElement
		register uint32
		then     []expr.Any
	}{{parts, leads, unix.NFT_REG_VERDICT, nil}, {targets, all, reg32Target, m.t.translate()}} {
		s.KeyType = indexType()
		if err := m.addSet(s.Set, s.elements); err != nil {
			return err
		}
		m.add(hash, []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID, IsDestRegSet: true, DestRegister: s.register}}, s.then)
	}
	return nil
}

// inMessage is how many elements a message has: its list of them has a length of 16 bits.
const inMessage = 500

// addSet adds an anonymous set, in several messages where it is large.
func (m *chainMaker) addSet(s *nftables.Set, elements []nftables.SetElement) error {
	s.Size = uint32(len(elements)) //nolint:gosec // below desired.MaxBackends
	first := min(inMessage, len(elements))
	if err := m.c.AddSet(s, elements[:first]); err != nil {
		return err
	}
	more := *s // found by its ID: until a rule has it, it may grow, which the library does not know
	more.Anonymous = false
	for part := range slices.Chunk(elements[first:], inMessage) {
		if err := m.c.SetAddElements(&more, part); err != nil {
			return err
		}
	}
	return nil
}

// drop drops what is of no source.
func (m *chainMaker) drop() error {
	s := m.anonymous(false)
	s.KeyType, s.Interval = m.t.addrType(), true
	var elements []nftables.SetElement
	end := netip.Addr{} // of the former range
	for _, p := range disjoint(m.x.sources, m.x.v6) {
		first := p.Addr()
		if first == end { // one range with the former
			elements = elements[:len(elements)-1]
		} else {
			if len(elements) == 0 && !first.IsUnspecified() {
				elements = append(elements, nftables.SetElement{Key: make([]byte, m.t.src().bytes), IntervalEnd: true})
			}
			elements = append(elements, nftables.SetElement{Key: first.AsSlice()})
		}
		if end = lastOf(p).Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	if err := m.addSet(s, elements); err != nil {
		return err
	}
	m.add([]expr.Any{m.t.src().load(), &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID, Invert: true}}, drop())
	return nil
}

// anonymous is a set that belongs to a rule of this transaction.
func (m *chainMaker) anonymous(isMap bool) *nftables.Set {
	m.t.setID++
	s := &nftables.Set{Table: m.t.table, ID: m.t.setID, Name: "__set%d", Anonymous: true, Constant: true, IsMap: isMap}
	if isMap {
		s.Name = "__map%d"
	}
	return s
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
