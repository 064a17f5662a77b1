package hoststack

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FuzzAttributes: any message of the kernel about rules, routes and connections is decoded
// without a panic. An attribute is found where the library that reads whole lists finds it.
// A table or an interface is reported only where the message names it.
func FuzzAttributes(f *testing.F) {
	list := func(kind uint16, value string) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.NLA_HDRLEN+len(value)))
		b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
		return append(b, make([]byte, (4-len(b)%4)%4)...)
	}
	table := append(make([]byte, nfgenBytes), list(1, TableName+"\x00")...)
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE), table)
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN), append(make([]byte, nfgenBytes), list(3, "nft\x00")...))
	f.Add(uint16(unix.RTM_DELROUTE), append(make([]byte, unix.SizeofRtMsg), list(unix.RTA_OIF, "\x03\x00\x00\x00")...))
	f.Add(uint16(unix.RTM_NEWLINK), make([]byte, unix.SizeofIfInfomsg))
	f.Add(uint16(unix.RTM_DELADDR), make([]byte, unix.SizeofIfAddrmsg-1))
	f.Add(uint16(0), append(list(1, "ab"), list(1|unix.NLA_F_NESTED, "cd")...))
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}
		if (&ruleWatch{self: "netplugin"}).lost(m) && !bytes.Contains(data, []byte(TableName)) {
			t.Errorf("message %#x of %x is taken for a loss of %s", kind, data, TableName)
		}
		if index := lostBy(m); index != 0 && !bytes.Contains(data, binary.NativeEndian.AppendUint32(nil, index)) {
			t.Errorf("message %#x of %x is about interface %d", kind, data, index)
		}
		attr(data, kind)
		if len(data)%unix.NLA_ALIGNTO != 0 {
			return // the library panics
		}
		all, err := nl.ParseRouteAttr(data)
		if err != nil {
			return
		}
		const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		first := map[uint16][]byte{}
		for _, a := range all {
			if k := a.Attr.Type &^ flags; first[k] == nil {
				first[k] = append([]byte{}, a.Value...)
			}
		}
		for k, want := range first {
			if got := attr(data, k); !bytes.Equal(got, want) {
				t.Errorf("attribute %d of %x is %x, not %x", k, data, got, want)
			}
		}
	})
}
