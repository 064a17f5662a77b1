package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Of nfnetlink_conntrack.h and nf_conntrack_common.h.
const (
	ctaTupleOrig, ctaStatus                = 1, 3
	ctaTupleIP, ctaTupleProto              = 1, 2
	ctaSrc, ctaDst                         = 1, 2
	ctaProtoNum, ctaSrcPort, ctaDstPort    = 1, 2, 3
	statusSeenReply, statusSourceIsChanged = 1 << 1, 1 << 4

	nfgenBytes = 4 // of struct nfgenmsg, before the attributes
)

// tracked is one connection of IPv4 that the kernel tracks, as it began.
type tracked struct {
	src      netip.Addr
	to       service
	answered bool // something came back
	masked   bool // its source address is translated
	record   []byte
}

// service is the destination of connections: address, protocol and port.
type service struct {
	addr  netip.Addr
	proto model.Protocol
	port  uint16
}

func trackRequest(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	return req
}

// eachTracked calls fn for every tracked connection of IPv4, until fn says
// false. The record is valid during the call only.
func eachTracked(fn func(tracked) bool) error {
	more := true
	err := trackRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(m []byte) bool {
		if len(m) < nfgenBytes || !more {
			return more
		}
		t := tracked{record: m[nfgenBytes:]}
		began, status := attr(t.record, ctaTupleOrig), attr(t.record, ctaStatus)
		ips, proto := attr(began, ctaTupleIP), attr(began, ctaTupleProto)
		src, dst := attr(ips, ctaSrc), attr(ips, ctaDst)
		if len(src) != 4 || len(dst) != 4 || len(status) != 4 {
			return true
		}
		t.src, t.to.addr = netip.AddrFrom4([4]byte(src)), netip.AddrFrom4([4]byte(dst))
		if n := attr(proto, ctaProtoNum); len(n) == 1 {
			t.to.proto = model.Protocol(n[0])
		}
		if p := attr(proto, ctaDstPort); len(p) == 2 {
			t.to.port = binary.BigEndian.Uint16(p)
		}
		bits := binary.BigEndian.Uint32(status)
		t.answered, t.masked = bits&statusSeenReply != 0, bits&statusSourceIsChanged != 0
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
func forget(records [][]byte) error {
	for _, r := range records {
		req := trackRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		req.AddRawData(r)
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !isMissing(err) {
			return fmt.Errorf("forget a connection: %w", err)
		}
	}
	return nil
}
