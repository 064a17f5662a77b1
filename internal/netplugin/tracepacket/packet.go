package tracepacket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Packet is the first packet of a connection: a SYN of TCP with data (RFC 9293 section 3.4), a
// datagram of UDP, or an echo request (RFC 792, RFC 4443 section 4.1).
type Packet struct {
	Protocol model.Protocol // ProtoTCP, ProtoUDP, ProtoICMP between IPv4 addresses, or ProtoICMPv6
	Src, Dst netip.AddrPort // of ICMP, Src's port is the request's identifier
	Payload  []byte         // by which it is recognised
}

const (
	// sends is how often a packet is sent until it is answered, sendPause the time between.
	sends     = 3
	sendPause = 300 * time.Millisecond

	flagSYN, flagRST, flagACK = 1 << 1, 1 << 2, 1 << 4 // RFC 9293 section 3.1
)

// Send sends the packet from a namespace that has its source address, up to three times, and
// returns what answered by the end of ctx; "" = nothing. The answer of TCP is refused by the
// namespace's own stack, which knows no such connection.
func (p Packet) Send(ctx context.Context, from ns.NetNS) (answer string, err error) {
	f, err := p.open(from)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // what was sent has left
	message := p.message()
	b := make([]byte, 2048)
	for n := range sends {
		if _, err := f.Write(message); err != nil {
			return "", unreached(err)
		}
		until, _ := ctx.Deadline()
		if pause := time.Now().Add(sendPause); n < sends-1 && pause.Before(until) {
			until = pause
		}
		if err := f.SetReadDeadline(until); err != nil {
			return "", fmt.Errorf("wait for an answer: %w", err)
		}
		for {
			n, err := f.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return answerOf(err), nil
			}
			if answer := p.read(b[:n]); answer != "" {
				return answer, nil
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return "", nil
}

// open opens a socket in a namespace that sends to the packet's destination and gets what comes
// from there.
func (p Packet) open(from ns.NetNS) (f *os.File, err error) {
	family, kind, proto := unix.AF_INET, unix.SOCK_RAW, int(p.Protocol)
	if p.Dst.Addr().Is6() {
		family = unix.AF_INET6
	}
	src, dst := p.Src, p.Dst
	if p.Protocol == model.ProtoUDP {
		kind = unix.SOCK_DGRAM
	} else { // ports mean something else to raw sockets
		src, dst = netip.AddrPortFrom(src.Addr(), 0), netip.AddrPortFrom(dst.Addr(), 0)
	}
	err = from.Do(func(ns.NetNS) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		f = os.NewFile(uintptr(fd), "trace")
		level, option := unix.IPPROTO_IP, unix.IP_RECVERR // reads return what ICMP says of the packet
		if family == unix.AF_INET6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return fmt.Errorf("listen to errors: %w", err)
		}
		if err := unix.Bind(fd, sockaddr(src)); err != nil {
			return fmt.Errorf("send from %s: %w", p.Src, err)
		}
		if err := unix.Connect(fd, sockaddr(dst)); err != nil {
			return unreached(err)
		}
		return nil
	})
	if err != nil && f != nil {
		_ = f.Close() // the first error tells more
	}
	return f, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// message is what the packet has behind its IP header, as its socket takes it.
func (p Packet) message() []byte {
	be := binary.BigEndian
	var b []byte
	sum := 2 // where the checksum is
	switch p.Protocol {
	case model.ProtoTCP:
		b = be.AppendUint16(b, p.Src.Port())
		b = be.AppendUint16(b, p.Dst.Port())
		b = append(b, p.Payload[:4]...)                                  // the sequence number
		b = append(b, 0, 0, 0, 0, 5<<4, flagSYN, 0xff, 0xff, 0, 0, 0, 0) // no acknowledgment, header, window, checksum, no urgent data
		sum = 16
	case model.ProtoICMP, model.ProtoICMPv6:
		request := byte(8)
		if p.Protocol == model.ProtoICMPv6 {
			request = 128
		}
		b = be.AppendUint16([]byte{request, 0, 0, 0}, p.Src.Port())
		b = append(b, 0, 1) // the sequence number
	default: // the kernel writes the header
		return p.Payload
	}
	b = append(b, p.Payload...)
	if p.Protocol == model.ProtoICMP {
		be.PutUint16(b[sum:], ^checksum.Sum(0, b))
		return b
	}
	addrs := append(p.Src.Addr().AsSlice(), p.Dst.Addr().AsSlice()...)
	be.PutUint16(b[sum:], ^checksum.Upper(uint8(p.Protocol), addrs, b)) //nolint:gosec // 6 or 58
	return b
}

// read says in words what an answer is; "" = none to this packet.
func (p Packet) read(b []byte) string {
	if p.Protocol == model.ProtoUDP {
		return "a datagram"
	}
	if p.Dst.Addr().Is4() { // raw sockets of IPv4 get the header, too
		if len(b) < 20 || len(b) < int(b[0]&0xf)*4 {
			return ""
		}
		b = b[int(b[0]&0xf)*4:]
	}
	be := binary.BigEndian
	if p.Protocol == model.ProtoTCP {
		if len(b) < 20 || be.Uint16(b) != p.Dst.Port() || be.Uint16(b[2:]) != p.Src.Port() {
			return ""
		}
		switch flags := b[13]; {
		case flags&flagRST != 0:
			return "RST: nothing listens at the port"
		case flags&(flagSYN|flagACK) == flagSYN|flagACK:
			return "SYN-ACK"
		}
		return ""
	}
	reply := byte(0)
	if p.Protocol == model.ProtoICMPv6 {
		reply = 129
	}
	if len(b) < 8 || b[0] != reply || be.Uint16(b[4:]) != p.Src.Port() {
		return ""
	}
	return "an echo reply"
}

// answerOf says in words what a message of ICMP, which the kernel gives as an error, answers.
func answerOf(err error) string {
	if errors.Is(err, unix.ECONNREFUSED) {
		return "ICMP: nothing listens at the port"
	}
	if code, is := errors.AsType[unix.Errno](err); is {
		return "ICMP: " + code.Error()
	}
	return "ICMP: " + err.Error()
}

// unreached says why a packet has not left.
func unreached(err error) error {
	return model.Errorf(model.ErrUnavailable, "the packet did not leave its namespace: %w", err)
}
