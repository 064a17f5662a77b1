package l2announce

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
)

// solicitation asks for an IPv6 address.
func solicitation(mac net.HardwareAddr, from, a netip.Addr) []byte {
	to := solicited(a)
	nd := append([]byte{neighbourSolicitation, 0, 0, 0, 0, 0, 0, 0}, a.AsSlice()...)
	nd = append(append(nd, 1, 1), mac...)
	ip := append([]byte{6 << 4, 0, 0, 0, 0, byte(len(nd)), icmpv6, 255}, from.AsSlice()...)
	ip = append(ip, to.AsSlice()...)
	binary.BigEndian.PutUint16(nd[2:], ^checksum.Upper(icmpv6, ip[8:40], nd))
	return append(append(ether(group(to), mac, etherIPv6), ip...), nd...)
}

// answerOf is which MAC a frame says that an address is at; nil = it says nothing of it.
func answerOf(f []byte, a netip.Addr) net.HardwareAddr {
	switch {
	case a.Is4() && len(f) >= etherLen+arpLen && f[21] == arpReply && bytes.Equal(f[28:32], a.AsSlice()):
		return bytes.Clone(f[22:28])
	case a.Is6() && len(f) >= etherLen+ipv6Len+ndLen+optLen && f[20] == icmpv6 && f[54] == neighbourAdvertisement && bytes.Equal(f[62:78], a.AsSlice()):
		return bytes.Clone(f[80:86])
	}
	return nil
}

// hear opens a packet socket that hears all of a kind.
func hear(index int, kind uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "packets"), unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: index})
}

// TestOnlyQuestionsForOurAddressesAreAnswered: questions for our addresses are answered to who asks, nothing else is, and
// no frame, whatever it holds, is answered wrongly.
func TestOnlyQuestionsForOurAddressesAreAnswered(t *testing.T) {
	mac, asker := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	zero := make(net.HardwareAddr, macLen)
	from4, from6 := netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("fe80::3")
	ours := func(a netip.Addr) bool { return a == addr4 || a == addr6 }
	change := func(f []byte, at int, b byte) []byte {
		f = bytes.Clone(f)
		f[at] = b
		return f
	}
	q4, q6 := arp(asker, broadcast, arpRequest, from4, zero, addr4), solicitation(asker, from6, addr6)
	for _, x := range []struct {
		what  string
		frame []byte
		to    string // the MAC that is answered; empty = none
	}{
		{"ARP", q4, asker.String()},
		{"ARP, to us alone", append(bytes.Clone(mac), q4[6:]...), asker.String()},
		{"an ARP probe", arp(asker, broadcast, arpRequest, netip.IPv4Unspecified(), zero, addr4), asker.String()},
		{"ARP for another address", arp(asker, broadcast, arpRequest, from4, zero, addr4.Next()), ""},
		{"an announcement of it", arp(asker, broadcast, arpRequest, addr4, zero, addr4), ""},
		{"an ARP reply", arp(asker, mac, arpReply, from4, mac, addr4), ""},
		{"ARP that is short", q4[:40], ""},
		{"ARP of other hardware", change(q4, etherLen+1, 6), ""},
		{"ARP of another protocol", change(q4, etherLen+2, 0x86), ""},
		{"our own ARP", arp(mac, broadcast, arpRequest, from4, zero, addr4), ""},
		{"a solicitation", q6, asker.String()},
		{"a solicitation of who wants it", solicitation(asker, netip.IPv6Unspecified(), addr6), group(allNodes).String()},
		{"a solicitation for another address", solicitation(asker, from6, addr6.Next()), ""},
		{"one that was routed", change(q6, etherLen+7, 254), ""},
		{"one with a wrong checksum", change(q6, etherLen+ipv6Len+2, q6[etherLen+ipv6Len+2]+1), ""},
		{"one that is short", q6[:etherLen+ipv6Len+ndLen-1], ""},
		{"one that says that it is longer", change(q6, etherLen+5, 200), ""},
		{"an advertisement", advertisement(asker, mac, addr6, addr6, 0), ""},
	} {
		got := answer(x.frame, mac, ours)
		if x.to == "" {
			if got != nil {
				t.Errorf("%s is answered: %x", x.what, got)
			}
			continue
		}
		if got == nil {
			t.Errorf("%s is not answered", x.what)
			continue
		}
		a := addr4
		if binary.BigEndian.Uint16(got[12:]) == etherIPv6 {
			a = addr6
			if checksum.Upper(icmpv6, got[etherLen+8:etherLen+40], got[etherLen+ipv6Len:]) != checksum.Right {
				t.Errorf("%s: a wrong checksum in %x", x.what, got)
			}
		}
		if to := net.HardwareAddr(got[:6]).String(); to != x.to || answerOf(got, a).String() != mac.String() {
			t.Errorf("%s: %s is told that %s is at %s", x.what, to, a, answerOf(got, a))
		}
	}
	for _, a := range []netip.Addr{addr4, addr6} {
		if got := answer(Announcement(asker, a), mac, ours); got != nil {
			t.Errorf("another one's announcement of %s is answered: %x", a, got)
		}
	}
}

// FuzzAnswer: whatever is asked, only what is ours is answered, by a whole frame that says where
// it is, to who asked or to all, and that is not answered itself.
func FuzzAnswer(f *testing.F) {
	asker := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	f.Add(arp(asker, broadcast, arpRequest, netip.MustParseAddr("10.9.0.3"), make(net.HardwareAddr, macLen), addr4))
	f.Add(solicitation(asker, netip.MustParseAddr("fe80::3"), addr6))
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	check := func(t *testing.T, frame []byte) {
		t.Helper()
		var asked netip.Addr
		got := answer(frame, mac, func(a netip.Addr) bool {
			asked = a
			return true
		})
		if got == nil {
			return
		}
		if at := answerOf(got, asked); !bytes.Equal(at, mac) || !bytes.Equal(got[6:12], mac) || bytes.Equal(got[:6], mac) {
			t.Errorf("%x is answered with %x, by which %s is at %s", frame, got, asked, at)
		}
		if !bytes.Equal(got[:6], frame[6:12]) && !bytes.Equal(got[:6], group(allNodes)) {
			t.Errorf("%x is answered with %x, to another", frame, got)
		}
		if asked.Is6() && checksum.Upper(icmpv6, got[22:54], got[54:]) != checksum.Right {
			t.Errorf("%x is answered with %x, which is damaged", frame, got)
		}
		if again := answer(got, asker, func(netip.Addr) bool { return true }); again != nil {
			t.Errorf("%x is answered with %x, and that with %x", frame, got, again)
		}
		if answer(frame, mac, func(netip.Addr) bool { return false }) != nil {
			t.Errorf("%x is answered, and the address is not ours", frame)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		check(t, frame)
		if len(frame) >= etherLen+ipv6Len+ndLen { // with a sum that is right
			frame = bytes.Clone(frame)
			if nd := frame[etherLen+ipv6Len:]; int(binary.BigEndian.Uint16(frame[etherLen+4:])) == len(nd) {
				nd[2], nd[3] = 0, 0
				binary.BigEndian.PutUint16(nd[2:], ^checksum.Upper(icmpv6, frame[etherLen+8:etherLen+ipv6Len], nd))
				check(t, frame)
			}
		}
	})
}
