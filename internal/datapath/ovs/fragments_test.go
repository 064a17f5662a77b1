package ovs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// pieces are the frames of a datagram of UDP from one box to another, in fragments of
// size bytes, the last one excepted; data is what the datagram carries.
func pieces(from, to *box, v6 bool, port uint16, id, size int, data []byte) [][]byte {
	be := binary.BigEndian
	src, dst, head, etype := from.port.IPv4, to.port.IPv4, ipv4Len, uint16(0x0800)
	if v6 {
		src, dst, head, etype = from.port.IPv6, to.port.IPv6, ipv6Len+8, 0x86dd
	}
	whole := be.AppendUint16(be.AppendUint16(nil, 4000), port)
	whole = append(append(be.AppendUint16(whole, uint16(8+len(data))), 0, 0), data...)
	be.PutUint16(whole[6:], transportSum(src, dst, 17, whole))
	var out [][]byte
	for at := 0; at < len(whole); {
		n, more := len(whole)-at, uint16(0)
		if most := (size - head) &^ 7; n > most {
			n, more = most, 1
		}
		f := append(append(slices.Clone(to.port.MAC[:]), from.port.MAC[:]...), byte(etype>>8), byte(etype))
		b := make([]byte, head)
		if v6 {
			b[0], b[6], b[7], b[40] = 0x60, 44, 64, 17
			be.PutUint16(b[4:], uint16(8+n))
			copy(b[8:], append(src.AsSlice(), dst.AsSlice()...))
			be.PutUint16(b[42:], uint16(at)|more)
			be.PutUint32(b[44:], uint32(id))
		} else {
			b[0], b[8], b[9] = 0x45, 64, 17
			be.PutUint16(b[2:], uint16(head+n))
			be.PutUint16(b[4:], uint16(id))
			be.PutUint16(b[6:], more<<13|uint16(at/8))
			copy(b[12:], append(src.AsSlice(), dst.AsSlice()...))
			be.PutUint16(b[10:], ^checksum.Sum(0, b))
		}
		out = append(out, append(append(f, b...), whole[at:at+n]...))
		at += n
	}
	return out
}

// sendFrames sends frames out of a box.
func sendFrames(t *testing.T, from *box, frames [][]byte) {
	t.Helper()
	if err := inNamespace(from.ns, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		index, err := interfaceIndex("eth0")
		if err != nil {
			return err
		}
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSmallFragmentsArrive: fragments of 400 bytes and more arrive, in any order, also after a
// restart of the switch. It drops smaller ones, except the last one of a datagram.
func TestSmallFragmentsArrive(t *testing.T) {
	if ovstest.Kernel() {
		t.Skip("the kernel's connection tracking takes fragments of any size")
	}
	l := newLive(t, 2)
	defer l.drv.Close()
	a, b := l.boxes[0], l.boxes[1]
	at := l.udp(t, b, 8053, netip.AddrPort{})
	id := 0
	try := func(size int, comes bool) {
		t.Helper()
		for _, v6 := range []bool{false, true} {
			for _, reversed := range []bool{false, true} {
				id++
				data := bytes.Repeat([]byte{byte(id), 1, 2, 3}, 3000/4)
				frames := pieces(a, b, v6, 8053, id, size, data)
				if reversed {
					slices.Reverse(frames)
				}
				sendFrames(t, a, frames)
				within := 3 * time.Second
				if !comes {
					within = 100 * time.Millisecond
				}
				got := make([]byte, len(data)+1)
				_ = at.SetReadDeadline(time.Now().Add(within))
				n, _, err := at.ReadFromUDPAddrPort(got)
				if came := err == nil && bytes.Equal(got[:n], data); came != comes {
					t.Errorf("%d fragments of %d bytes, IPv6 %v, reversed %v: they come %v, want %v (%v)\n%s",
						len(frames), size, v6, reversed, came, comes, err, l.Appctl("dpctl/ipf-get-status"))
				}
			}
		}
	}
	for _, size := range []int{1500, 1008, 576, 408} {
		try(size, true)
	}
	for _, size := range []int{392, 112} { // docs/reference/restrictions.md says so
		try(size, false)
	}
	l.KillSwitch()
	l.StartSwitch()
	eventually(t, "the flows are back", func() bool {
		return l.in(a, "ping", "-c", "1", "-W", "1", b.port.IPv4.String()).Run() == nil
	})
	try(576, true)
}
