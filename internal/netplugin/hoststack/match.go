package hoststack

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The parts of rules, each a list of nftables expressions.

// field is an address in an IP header.
type field struct{ offset, bytes uint32 }

// The addresses of IPv4 (RFC 791 section 3.1) and of IPv6 (RFC 8200 section 3).
var (
	src4, dst4 = field{12, 4}, field{16, 4}
	src6, dst6 = field{8, 16}, field{24, 16}
)

func srcOf(a netip.Addr) field {
	if a.Is4() {
		return src4
	}
	return src6
}

func dstOf(a netip.Addr) field {
	if a.Is4() {
		return dst4
	}
	return dst6
}

func (f field) load() expr.Any { return payload(expr.PayloadBaseNetworkHeader, f.offset, f.bytes) }

func (f field) compare(op expr.CmpOp, a netip.Addr) []expr.Any {
	return []expr.Any{f.load(), &expr.Cmp{Op: op, Register: 1, Data: a.AsSlice()}}
}

// ipsDNAT is the status of a connection whose destination is translated
// (linux/netfilter/nf_conntrack_common.h, IPS_DST_NAT).
const ipsDNAT = 1 << 5

var (
	loopback4 = netip.MustParsePrefix("127.0.0.0/8")
	loopback6 = netip.MustParsePrefix("::1/128")
)

func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func meta(key expr.MetaKey, op expr.CmpOp, data []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

func iif(name string) []expr.Any    { return meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, ifname(name)) }
func oif(name string) []expr.Any    { return meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, ifname(name)) }
func notIif(name string) []expr.Any { return meta(expr.MetaKeyIIFNAME, expr.CmpOpNeq, ifname(name)) }

func notOif(name string) []expr.Any { return meta(expr.MetaKeyOIFNAME, expr.CmpOpNeq, ifname(name)) }

func l4(p model.Protocol) []expr.Any {
	return meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{byte(p)})
}

func payload(base expr.PayloadBase, offset, n uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: n}
}

func port(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

func dport(p uint16) []expr.Any {
	return []expr.Any{payload(expr.PayloadBaseTransportHeader, 2, 2), &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port(p)}}
}

// The table that these stand in has to be of the address's family.

func daddr(a netip.Addr) []expr.Any    { return dstOf(a).compare(expr.CmpOpEq, a) }
func notDaddr(a netip.Addr) []expr.Any { return dstOf(a).compare(expr.CmpOpNeq, a) }
func saddr(a netip.Addr) []expr.Any    { return srcOf(a).compare(expr.CmpOpEq, a) }
func notSaddr(a netip.Addr) []expr.Any { return srcOf(a).compare(expr.CmpOpNeq, a) }

func srcIn(p netip.Prefix) []expr.Any    { return srcOf(p.Addr()).in(expr.CmpOpEq, p) }
func dstIn(p netip.Prefix) []expr.Any    { return dstOf(p.Addr()).in(expr.CmpOpEq, p) }
func dstNotIn(p netip.Prefix) []expr.Any { return dstOf(p.Addr()).in(expr.CmpOpNeq, p) }

func (f field) in(op expr.CmpOp, p netip.Prefix) []expr.Any {
	return []expr.Any{
		f.load(),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: f.bytes, Mask: ipNet(p).Mask, Xor: make([]byte, f.bytes)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// dstLocal matches any address of this host.
func dstLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
	}
}

// asymmetricSource matches a source that the host reaches by another interface, if at all,
// than the packet came by.
func asymmetricSource() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
	}
}

func ct(key expr.CtKey, bits uint32, set bool) []expr.Any {
	op := expr.CmpOpEq
	if set {
		op = expr.CmpOpNeq
	}
	return []expr.Any{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: make([]byte, 4)},
	}
}

func ctState(bits uint32, set bool) []expr.Any { return ct(expr.CtKeySTATE, bits, set) }
func wasDNAT(yes bool) []expr.Any              { return ct(expr.CtKeySTATUS, ipsDNAT, yes) }

// original matches what the client of a connection sends.
func original() []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}}}
}

// invalid matches what conntrack knows no connection for, and NAT leaves as it is.
func invalid() []expr.Any { return ctState(expr.CtStateBitINVALID, true) }

func natFamily(a netip.Addr) uint32 {
	if a.Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// snat gives connections an address as source.
func snat(to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: natFamily(to), RegAddrMin: 1},
	}
}

// dnat leads to an address and, unless it is 0, a port.
func dnat(to netip.Addr, p uint16) []expr.Any {
	family := natFamily(to)
	if p == 0 {
		return []expr.Any{
			&expr.Immediate{Register: 1, Data: to.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1},
		}
	}
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: to.AsSlice()},
		&expr.Immediate{Register: 2, Data: port(p)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}
}

// Registers of four bytes; register 1, of 16 bytes, is the first four of them. A
// set's key of two parts lies in consecutive registers.
const (
	reg32After4  = unix.NFT_REG32_01 // behind an IPv4 address in register 1
	reg32After16 = unix.NFT_REG32_04 // behind an IPv6 address in register 1
)

func v4() []expr.Any  { return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{unix.NFPROTO_IPV4}) }
func v6() []expr.Any  { return meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, []byte{unix.NFPROTO_IPV6}) }
func tcp() []expr.Any { return l4(model.ProtoTCP) }

func lookup(setName string) expr.Any {
	return &expr.Lookup{SourceRegister: 1, SetName: setName}
}

// dportIn matches a destination port of a set.
func dportIn(setName string) []expr.Any {
	return []expr.Any{payload(expr.PayloadBaseTransportHeader, 2, 2), lookup(setName)}
}

// target matches the destination by a set of address and port.
func target(f field, behind uint32, setName string) []expr.Any {
	return []expr.Any{
		f.load(),
		&expr.Payload{DestRegister: behind, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		lookup(setName),
	}
}

// reset answers TCP at once, and counts.
func reset() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}

// sendsOver matches a source's packets beyond so many a second; the set counts
// them for each source.
func sendsOver(src field, perSecond uint64, burst uint32, setName string) []expr.Any {
	return []expr.Any{
		src.load(),
		&expr.Dynset{SrcRegKey: 1, SetName: setName, Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{
			&expr.Limit{Type: expr.LimitTypePkts, Rate: perSecond, Unit: expr.LimitTimeSecond, Burst: burst, Over: true},
		}},
	}
}

// setMark gives a packet a mark.
func hasMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, mark)},
	}
}

func setMark(mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}
}

func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }
func drop() []expr.Any       { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }
func accept() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}
}

// srcLocal matches what this host itself sends.
func srcLocal() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)},
	}
}
