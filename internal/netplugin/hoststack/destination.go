package hoststack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Destination tells where a packet of a connection was sent before the rules of this
// package led it to an address of this host: from sent it, at got it. The kernel's
// connection tracking knows; when it does not (any more), that is an error.
func Destination(proto model.Protocol, from, at netip.AddrPort) (netip.Addr, error) {
	family, src, dst := uint8(unix.AF_INET), nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if from.Addr().Is6() {
		family, src, dst = unix.AF_INET6, nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	req := trackRequest(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_ACK)
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_REPLY, nil)
	ip := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(src, at.Addr().AsSlice())
	ip.AddRtAttr(dst, from.Addr().AsSlice())
	p := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	p.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(proto)})
	p.AddRtAttr(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, at.Port()))
	p.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, from.Port()))
	req.AddData(tuple)
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find where %s sent to: %w", from, err)
	}
	for _, m := range msgs {
		if a, ok := originalDestination(m, uint16(dst)); ok {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("find where %s sent to: %w", from, errors.New("the kernel's answer names no destination"))
}

// originalDestination reads CTA_TUPLE_ORIG, CTA_TUPLE_IP, and of it dst of a message
// of ctnetlink.
func originalDestination(m []byte, dst uint16) (netip.Addr, bool) {
	if len(m) < nl.SizeofNfgenmsg {
		return netip.Addr{}, false
	}
	m = m[nl.SizeofNfgenmsg:]
	for _, kind := range []uint16{nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, dst} {
		attrs, err := nl.ParseRouteAttr(m)
		i := slices.IndexFunc(attrs, func(a syscall.NetlinkRouteAttr) bool { return a.Attr.Type&^unix.NLA_F_NESTED == kind })
		if err != nil || i < 0 {
			return netip.Addr{}, false
		}
		m = attrs[i].Value
	}
	return netip.AddrFromSlice(m)
}
