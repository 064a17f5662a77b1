package hoststack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Of nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	ctaTupleOrig, ctaTupleReply, ctaStatus = 1, 2, 3
	ctaZone                                = 18
	ctaTupleIP, ctaTupleProto              = 1, 2
	ctaSrc, ctaDst                         = 1, 2 // of IPv4
	ctaSrc6, ctaDst6                       = 3, 4
	ctaProtoNum, ctaSrcPort, ctaDstPort    = 1, 2, 3
	statusSeenReply, statusSourceIsChanged = 1 << 1, 1 << 4
	statusDestinationIsChanged             = ipsDNAT

	nfgenBytes = 4 // of struct nfgenmsg, before the attributes
)

// trackedConnection is one connection of IPv4 or IPv6 that the kernel tracks, as it began.
type trackedConnection struct {
	src      netip.Addr
	to       service
	from     netip.AddrPort // who answers, translated or not
	answered bool           // something came back
	masked   bool           // its source address is translated
	routed   bool           // its destination is
	record   conntrackRecord
}

// conntrackRecord is a connection as the kernel names it: the attributes of its message.
type conntrackRecord struct {
	family     uint8
	attributes []byte
}

func (r conntrackRecord) clone() conntrackRecord {
	return conntrackRecord{r.family, slices.Clone(r.attributes)}
}

// service is the destination of connections: address, protocol and port.
type service struct {
	addr  netip.Addr
	proto model.Protocol
	port  uint16
}

func trackRequest(family uint8, kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return req
}

// eachTracked calls fn for every connection that the host's stack tracks, until fn says
// false; a switch's own are in zones. The record is valid during the call only.
func eachTracked(fn func(trackedConnection) bool) error {
	more := true
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := eachTrackedOf(family, func(t trackedConnection) bool {
			more = more && fn(t)
			return more
		}); err != nil {
			return err
		}
	}
	return nil
}

// eachTrackedOf is eachTracked for one family, and for what is asked for alone.
func eachTrackedOf(family uint8, fn func(trackedConnection) bool, ask ...nl.NetlinkRequestData) error {
	keySrc, keyDst := uint16(ctaSrc), uint16(ctaDst)
	if family == unix.AF_INET6 {
		keySrc, keyDst = ctaSrc6, ctaDst6
	}
	more := true
	req := trackRequest(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	for _, part := range ask {
		req.AddData(part)
	}
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) < nfgenBytes || !more {
			return more
		}
		t := trackedConnection{record: conntrackRecord{family, m[nfgenBytes:]}}
		if slices.ContainsFunc(attr(t.record.attributes, ctaZone), func(b byte) bool { return b != 0 }) {
			return true
		}
		began, status := attr(t.record.attributes, ctaTupleOrig), attr(t.record.attributes, ctaStatus)
		ips, proto := attr(began, ctaTupleIP), attr(began, ctaTupleProto)
		var known, both bool
		t.src, known = netip.AddrFromSlice(attr(ips, keySrc))
		t.to.addr, both = netip.AddrFromSlice(attr(ips, keyDst))
		if !known || !both || len(status) != 4 {
			return true
		}
		if n := attr(proto, ctaProtoNum); len(n) == 1 {
			t.to.proto = model.Protocol(n[0])
		}
		if p := attr(proto, ctaDstPort); len(p) == 2 {
			t.to.port = binary.BigEndian.Uint16(p)
		}
		back := attr(t.record.attributes, ctaTupleReply)
		if a, ok := netip.AddrFromSlice(attr(attr(back, ctaTupleIP), keySrc)); ok {
			if p := attr(attr(back, ctaTupleProto), ctaSrcPort); len(p) == 2 {
				t.from = netip.AddrPortFrom(a, binary.BigEndian.Uint16(p))
			}
		}
		bits := binary.BigEndian.Uint32(status)
		t.answered, t.masked, t.routed = bits&statusSeenReply != 0, bits&statusSourceIsChanged != 0, bits&statusDestinationIsChanged != 0
		more = fn(t)
		return more
	})
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // it changes all the time
		return fmt.Errorf("read connection tracking: %w", err)
	}
	return nil
}

// attr finds an attribute in a list; nil = it is not there.
func attr(b []byte, kind uint16) []byte {
	for len(b) >= unix.NLA_HDRLEN {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.NLA_HDRLEN || n > len(b) {
			return nil
		}
		if binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return b[unix.NLA_HDRLEN:n]
		}
		b = b[min((n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}

// forget takes connections out of the tracking.
func forget(records []conntrackRecord) error {
	for _, r := range records {
		req := trackRequest(r.family, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		req.AddRawData(r.attributes)
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !isMissing(err) {
			return fmt.Errorf("forget a connection: %w", err)
		}
	}
	return nil
}
