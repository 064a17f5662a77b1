package hostnet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/desired"
)

// rules is how many rules addChain makes.
func (x *choosing) rules() int {
	n := 1
	if x.drops() {
		n++
	}
	if x.stay != "" {
		n += 2
	}
	return n
}

// drops tells whether some clients are dropped.
func (x *choosing) drops() bool {
	return len(x.sources) > 0 && !slices.ContainsFunc(x.sources, func(p netip.Prefix) bool { return p.Bits() == 0 && p.Addr().Is6() == x.v6 })
}

// dynsetDelete takes an element away (linux/netfilter/nf_tables.h, NFT_DYNSET_OP_DELETE).
const dynsetDelete = 2

// addChain adds a wanted chain to a transaction.
//
// A client is in register 1, its backend in register 2, the port behind the address.
func (t *frontTable) addChain(c *nftables.Conn, name string) error {
	x := t.chains[name]
	m := chainMaker{t: t, c: c, chain: c.AddChain(&nftables.Chain{Name: name, Table: t.table}), x: x}
	m.addr, m.src, m.port = nftables.TypeIPAddr, src4, unix.NFT_REG32_05
	if t.v6() {
		m.addr, m.src, m.port = nftables.TypeIP6Addr, src6, unix.NFT_REG32_08
	}
	m.target = nftables.MustConcatSetType(m.addr, nftables.TypeInetService)
	t.is[name] = true
	if x.drops() {
		if err := m.drop(); err != nil {
			return err
		}
	}
	if x.stay == "" {
		random := &expr.Numgen{Register: 1, Modulus: uint32(len(x.targets)), Type: unix.NFT_NG_RANDOM}
		return m.lead(m.chosen([]expr.Any{random}))
	}
	if !t.stays[x.stay] {
		if err := c.AddSet(&nftables.Set{
			Table: t.table, Name: x.stay, KeyType: m.addr, DataType: m.target, IsMap: true, Dynamic: true, HasTimeout: true, Size: desired.MaxAffine,
		}, nil); err != nil {
			return err
		}
		t.stays[x.stay] = true
	}
	return m.affine()
}

// chainMaker makes one chain.
type chainMaker struct {
	t      *frontTable
	c      *nftables.Conn
	chain  *nftables.Chain
	x      *choosing
	addr   nftables.SetDatatype
	target nftables.SetDatatype // address . port
	src    field
	port   uint32 // the register behind the target's address
}

func (m *chainMaker) lead(e []expr.Any, err error) error {
	if err == nil {
		family := uint32(unix.NFPROTO_IPV4)
		if m.t.v6() {
			family = unix.NFPROTO_IPV6
		}
		e = append(e, &expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: unix.NFT_REG_2, RegProtoMin: m.port, Specified: true})
		m.c.AddRule(&nftables.Rule{Table: m.t.table, Chain: m.chain, Exprs: e})
	}
	return err
}

// affine leads a client to where it was, as long as that is a target; chooses by the
// client's address, and remembers; and only chooses where no more clients are remembered.
func (m *chainMaker) affine() error {
	members := m.anonymous(false)
	members.KeyType, members.Concatenation = m.target, true
	var elements []nftables.SetElement
	for _, t := range m.x.targets {
		elements = append(elements, nftables.SetElement{Key: targetKey(t)})
	}
	if err := m.addSet(members, elements); err != nil {
		return err
	}
	remember := func(op uint32) expr.Any {
		return &expr.Dynset{SrcRegKey: 1, SrcRegData: unix.NFT_REG_2, SetName: m.x.stay, Operation: op, Timeout: m.x.affinity}
	}
	if err := m.lead([]expr.Any{
		m.src.load(),
		&expr.Lookup{SourceRegister: 1, SetName: m.x.stay, IsDestRegSet: true, DestRegister: unix.NFT_REG_2},
		&expr.Lookup{SourceRegister: unix.NFT_REG_2, SetName: members.Name, SetID: members.ID},
		remember(unix.NFT_DYNSET_OP_UPDATE),
	}, nil); err != nil {
		return err
	}
	hash := []expr.Any{m.src.load(), &expr.Hash{SourceRegister: 1, DestRegister: 1, Length: m.src.bytes, Modulus: uint32(len(m.x.targets)), Seed: 1, Type: expr.HashTypeJenkins}}
	choose, err := m.chosen(hash)
	if err != nil {
		return err
	}
	if err := m.lead(append(choose, m.src.load(), remember(dynsetDelete), remember(unix.NFT_DYNSET_OP_UPDATE)), nil); err != nil {
		return err
	}
	return m.lead(m.chosen(hash))
}

// chosen puts the target of the number that some expressions put into register 1 into
// register 2.
func (m *chainMaker) chosen(number []expr.Any) ([]expr.Any, error) {
	all := m.anonymous(true)
	all.KeyType, all.DataType = nftables.SetDatatype{Name: "mark", Bytes: 4}, m.target
	all.KeyType.SetNFTMagic(nftables.TypeMark.GetNFTMagic())
	var elements []nftables.SetElement
	for i, t := range m.x.targets {
		elements = append(elements, nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, uint32(i)), Val: targetKey(t)}) //nolint:gosec // below desired.MaxBackends
	}
	return append(slices.Clone(number), &expr.Lookup{SourceRegister: 1, SetName: all.Name, SetID: all.ID, IsDestRegSet: true, DestRegister: unix.NFT_REG_2}), m.addSet(all, elements)
}

// inMessage is how many elements a message has: its list of them has a length of 16 bits.
const inMessage = 1000

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
	s.KeyType, s.Interval = m.addr, true
	var elements []nftables.SetElement
	end := netip.Addr{} // of the former range
	for _, p := range disjoint(m.x.sources, m.x.v6) {
		first := p.Addr()
		if first == end { // one range with the former
			elements = elements[:len(elements)-1]
		} else {
			if len(elements) == 0 && !first.IsUnspecified() {
				elements = append(elements, nftables.SetElement{Key: make([]byte, m.src.bytes), IntervalEnd: true})
			}
			elements = append(elements, nftables.SetElement{Key: first.AsSlice()})
		}
		if end = lastOf(p).Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	r := slices.Concat([]expr.Any{m.src.load()}, []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID, Invert: true}}, drop())
	if len(elements) == 0 { // no source is of the family
		r = drop()
	} else if err := m.c.AddSet(s, elements); err != nil {
		return err
	}
	m.c.AddRule(&nftables.Rule{Table: m.t.table, Chain: m.chain, Exprs: r})
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

func targetKey(t Target) []byte {
	return slices.Concat(t.Addr().AsSlice(), port(t.Port()), []byte{0, 0})
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
