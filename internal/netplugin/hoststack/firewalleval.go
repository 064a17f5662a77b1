package hoststack

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// probe is a forwarded packet of which it is asked whether a firewall's chains let it
// through.
type probe struct {
	hook     nftables.ChainHook
	proto    model.Protocol
	in, out  string // interfaces; empty = this host itself
	src, dst netip.AddrPort
	state    uint32 // of its connection, one of expr.CtStateBit*
	status   uint32 // likewise, IPS_*
}

// certainty is what is known of whether a rule matches.
type certainty int

const (
	no certainty = iota
	maybe
	yes
)

// evaluation goes through chains as the kernel would with a probe. What it does not know
// the meaning of may match or not.
type evaluation struct {
	c       *nftables.Conn
	rules   map[chainKey][]*nftables.Rule
	sets    map[chainKey]*setContent
	skip    string // rules with this comment count as not there; "" = all are
	visited map[chainKey]bool
	err     error // what could not be read: its rules may do anything
}

// chainKey names a chain or a set.
type chainKey struct {
	family      nftables.TableFamily
	table, name string
}

type setContent struct {
	*nftables.Set
	elements []nftables.SetElement
}

func newEvaluation(c *nftables.Conn) *evaluation {
	return &evaluation{c: c, rules: map[chainKey][]*nftables.Rule{}, sets: map[chainKey]*setContent{}, visited: map[chainKey]bool{}}
}

// drops reports whether a base chain surely drops a probe.
func (e *evaluation) drops(ch *nftables.Chain, p probe) bool {
	w := chainWalk{evaluation: e, probe: p}
	switch w.chain(ch.Table, ch.Name, 0) {
	case expr.VerdictAccept:
		return false
	case expr.VerdictDrop:
	default:
		if ch.Policy == nil || *ch.Policy == nftables.ChainPolicyAccept {
			return false
		}
	}
	return !w.mayPass
}

// chainWalk is one probe's way.
type chainWalk struct {
	*evaluation
	probe
	mayPass bool // a rule that accepts may match
	marked  bool // a rule may have given it a mark
}

const maxDepth = 16 // chains that jump to one another, as in the kernel (NFT_JUMP_STACK_SIZE)

// chain returns VerdictAccept, VerdictDrop, or VerdictReturn at the end.
func (w *chainWalk) chain(t *nftables.Table, name string, depth int) expr.VerdictKind {
	for _, r := range w.rulesOf(t, name) {
		if text, _ := userdata.GetString(r.UserData, userdata.TypeComment); w.skip != "" && text == w.skip {
			continue
		}
		match, verdict := w.rule(t, r)
		if match == no || verdict == nil {
			continue
		}
		kind := verdict.Kind
		if depth < maxDepth && (kind == expr.VerdictJump || kind == expr.VerdictGoto) {
			before := w.mayPass
			if kind = w.chain(t, verdict.Chain, depth+1); kind == expr.VerdictReturn {
				if match == yes && verdict.Kind == expr.VerdictGoto {
					return kind
				}
				continue
			}
			if match == maybe && kind == expr.VerdictDrop {
				w.mayPass = before // only where it matches
			}
		}
		switch {
		case kind == expr.VerdictReturn && match == yes:
			return kind
		case kind == expr.VerdictReturn, kind == expr.VerdictDrop && match == maybe, kind == expr.VerdictContinue:
		case kind == expr.VerdictDrop:
			return kind
		case match == yes: // accept, and what hands it to a program
			return expr.VerdictAccept
		default:
			w.mayPass = true
		}
	}
	return expr.VerdictReturn
}

func (e *evaluation) rulesOf(t *nftables.Table, name string) []*nftables.Rule {
	key := chainKey{t.Family, t.Name, name}
	e.visited[key] = true
	if all, known := e.rules[key]; known {
		return all
	}
	all, err := e.c.GetRules(t, &nftables.Chain{Name: name, Table: t})
	if err != nil && !isMissing(err) {
		e.err = cmp.Or(e.err, err)
	}
	e.rules[key] = all
	return all
}

func (e *evaluation) set(t *nftables.Table, name string) *setContent {
	key := chainKey{t.Family, t.Name, name}
	e.visited[key] = true
	if s, known := e.sets[key]; known {
		return s
	}
	var s *setContent
	if found, err := e.c.GetSetByName(t, name); err == nil {
		if elements, err := e.c.GetSetElements(found); err == nil {
			s = &setContent{found, elements}
		}
	}
	e.sets[key] = s
	return s
}

// registers hold what expressions have loaded; what is not known is missing.
type registers struct {
	data  [80]byte
	known [80]bool
}

// registerOffset is where a register begins: the first four have 16 bytes, the others four.
func registerOffset(register uint32) int {
	if register < unix.NFT_REG32_00 {
		return int(register-unix.NFT_REG_1) * 16
	}
	return int(register-unix.NFT_REG32_00) * 4
}

func (r *registers) put(register uint32, b []byte) {
	at := registerOffset(register)
	clear(r.known[at:min(at+16, len(r.known))])
	for i := range min(len(b), len(r.data)-at) {
		r.data[at+i], r.known[at+i] = b[i], true
	}
}

// get returns bytes of a register; nil = not all of them are known.
func (r *registers) get(register uint32, n int) []byte {
	at := registerOffset(register)
	if at+n > len(r.data) || slices.Contains(r.known[at:at+n], false) {
		return nil
	}
	return r.data[at : at+n]
}

func certain(is bool) certainty {
	if is {
		return yes
	}
	return no
}

// rule reports whether a rule matches, and what it does then; nil = nothing.
func (w *chainWalk) rule(t *nftables.Table, r *nftables.Rule) (certainty, *expr.Verdict) {
	var reg registers
	match := yes
	for _, x := range r.Exprs {
		is := yes
		switch x := x.(type) {
		case *expr.Meta:
			if x.SourceRegister {
				w.marked = w.marked || x.Key == expr.MetaKeyMARK
			} else {
				reg.put(x.Register, w.meta(x.Key))
			}
		case *expr.Ct:
			if !x.SourceRegister {
				reg.put(x.Register, w.ct(x.Key))
			}
		case *expr.Payload:
			if x.OperationType == expr.PayloadLoad {
				reg.put(x.DestRegister, w.payload(x))
			}
		case *expr.Bitwise:
			var out []byte
			if in := reg.get(x.SourceRegister, int(x.Len)); in != nil && len(x.Mask) >= len(in) && len(x.Xor) >= len(in) {
				out = make([]byte, len(in))
				for i := range in {
					out[i] = in[i]&x.Mask[i] ^ x.Xor[i]
				}
			}
			reg.put(x.DestRegister, out)
		case *expr.Cmp:
			is = maybe
			if got := reg.get(x.Register, len(x.Data)); got != nil {
				is = certain(compares(x.Op, bytes.Compare(got, x.Data)))
			}
		case *expr.Range:
			is = maybe
			if got := reg.get(x.Register, len(x.FromData)); got != nil {
				within := bytes.Compare(got, x.FromData) >= 0 && bytes.Compare(got, x.ToData) <= 0
				is = certain(within == (x.Op == expr.CmpOpEq))
			}
		case *expr.Lookup:
			is = w.lookup(t, x, &reg)
		case *expr.Match:
			is = w.xtMatch(x)
		case *expr.Limit:
			is = certain(!x.Over)
		case *expr.Counter, *expr.Log, *expr.Objref:
		case *expr.Verdict:
			return match, x
		case *expr.Reject:
			return match, &expr.Verdict{Kind: expr.VerdictDrop}
		case *expr.Queue:
			return match, &expr.Verdict{Kind: expr.VerdictAccept}
		case *expr.Target:
			switch x.Name {
			case "REJECT", "DROP":
				return match, &expr.Verdict{Kind: expr.VerdictDrop}
			case "NFQUEUE":
				return match, &expr.Verdict{Kind: expr.VerdictAccept}
			case "MARK", "CONNMARK":
				w.marked = true
			}
		case *expr.Immediate:
			reg.put(x.Register, x.Data)
		default:
			is = maybe
		}
		if match = min(match, is); match == no {
			return no, nil
		}
	}
	return match, nil
}

func compares(op expr.CmpOp, order int) bool {
	switch op {
	case expr.CmpOpEq:
		return order == 0
	case expr.CmpOpNeq:
		return order != 0
	case expr.CmpOpLt:
		return order < 0
	case expr.CmpOpLte:
		return order <= 0
	case expr.CmpOpGt:
		return order > 0
	case expr.CmpOpGte:
		return order >= 0
	}
	return false
}

func (w *chainWalk) meta(key expr.MetaKey) []byte {
	switch key {
	case expr.MetaKeyIIFNAME:
		return ifname(w.in)
	case expr.MetaKeyOIFNAME:
		return ifname(w.out)
	case expr.MetaKeyL4PROTO:
		return []byte{byte(w.proto)}
	case expr.MetaKeyNFPROTO:
		return []byte{byte(natFamily(w.src.Addr()))}
	case expr.MetaKeyMARK:
		if !w.marked {
			return make([]byte, 4)
		}
	case expr.MetaKeyPROTOCOL:
		if w.src.Addr().Is6() {
			return []byte{0x86, 0xdd}
		}
		return []byte{0x08, 0}
	default:
	}
	return nil // not known
}

func (w *chainWalk) ct(key expr.CtKey) []byte {
	switch key {
	case expr.CtKeySTATE:
		return binary.NativeEndian.AppendUint32(nil, w.state)
	case expr.CtKeySTATUS:
		return binary.NativeEndian.AppendUint32(nil, w.status)
	default:
	}
	return nil // not known
}

// payload is part of the packet: of addresses and ports.
func (w *chainWalk) payload(x *expr.Payload) []byte {
	var b []byte
	at := uint32(0)
	switch x.Base {
	case expr.PayloadBaseNetworkHeader:
		b, at = slices.Concat(w.src.Addr().AsSlice(), w.dst.Addr().AsSlice()), srcOf(w.src.Addr()).offset
	case expr.PayloadBaseTransportHeader:
		b = slices.Concat(port(w.src.Port()), port(w.dst.Port()))
	default:
	}
	if x.Offset < at || x.Offset+x.Len > at+uint32(len(b)) { //nolint:gosec // a few bytes
		return nil
	}
	return b[x.Offset-at:][:x.Len]
}

// lookup reports whether a set has what was loaded.
func (w *chainWalk) lookup(t *nftables.Table, x *expr.Lookup, reg *registers) certainty {
	s := w.set(t, x.SetName)
	if s == nil || s.Concatenation && s.Interval || x.IsDestRegSet {
		return maybe
	}
	key := reg.get(x.SourceRegister, int(s.KeyType.Bytes))
	if key == nil {
		return maybe
	}
	found := false
	if s.Interval { // elements begin and end intervals
		var last *nftables.SetElement
		for i, el := range s.elements {
			if bytes.Compare(el.Key, key) <= 0 && (last == nil || bytes.Compare(el.Key, last.Key) > 0 || !el.IntervalEnd && bytes.Equal(el.Key, last.Key)) {
				last = &s.elements[i]
			}
		}
		found = last != nil && !last.IntervalEnd
	} else {
		found = slices.ContainsFunc(s.elements, func(el nftables.SetElement) bool { return bytes.Equal(el.Key, key) })
	}
	return certain(found != x.Invert)
}

// xtMatch reports whether a match of iptables does.
func (w *chainWalk) xtMatch(x *expr.Match) certainty {
	switch info := x.Info.(type) {
	case *xt.Comment:
		return yes
	case *xt.ConntrackMtinfo1:
		return w.conntrack(info.ConntrackMtinfoBase, uint16(info.StateMask))
	case *xt.ConntrackMtinfo2:
		return w.conntrack(info.ConntrackMtinfoBase, info.StateMask)
	case *xt.ConntrackMtinfo3:
		return w.conntrack(info.ConntrackMtinfoBase, info.StateMask)
	case *xt.Unknown:
		if x.Name == "state" && len(*info) >= 4 {
			return certain(uint16(binary.NativeEndian.Uint32(*info))&w.xtState() != 0) //nolint:gosec // seven bits
		}
	}
	return maybe
}

// Of xt_conntrack.h: states that are not of nftables.
const xtStateDNAT = 1 << 7

// xtState is the state as xt_conntrack.h has it: XT_CONNTRACK_STATE_BIT, and DNAT.
func (w *chainWalk) xtState() (bits uint16) {
	for state, bit := range map[uint32]uint16{expr.CtStateBitINVALID: 1, expr.CtStateBitESTABLISHED: 2, expr.CtStateBitRELATED: 4, expr.CtStateBitNEW: 8} {
		if w.state&state != 0 {
			bits |= bit
		}
	}
	if w.status&ipsDNAT != 0 {
		bits |= xtStateDNAT
	}
	return bits
}

func (w *chainWalk) conntrack(info xt.ConntrackMtinfoBase, mask uint16) certainty {
	const state = uint16(xt.ConntrackState)
	if info.MatchFlags&^(state|uint16(xt.ConntrackStateAlias)) != 0 {
		return maybe
	}
	return certain((mask&w.xtState() != 0) == (info.InvertFlags&state == 0))
}
