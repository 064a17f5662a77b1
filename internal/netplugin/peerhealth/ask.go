package peerhealth

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// patience is how long an answer is waited for, of each of the two ways to ask.
const patience = time.Second

// Ask returns a Config.Ask that sends an ICMP echo request from one of this host's
// addresses, and, if that is not answered within a second, begins a TCP connection to
// a port: who takes or refuses it is there.
func Ask(from netip.Addr, port uint16) func(context.Context, netip.Addr) (bool, error) {
	return func(ctx context.Context, to netip.Addr) (bool, error) {
		yes, err := echo(ctx, from, to)
		if yes || ctx.Err() != nil {
			return yes, err
		}
		taken, failed := connect(ctx, from, netip.AddrPortFrom(to, port))
		if taken {
			return true, nil
		}
		return false, errors.Join(err, failed)
	}
}

// replyOf tells what an error says of the other host: that it is there, that it is not
// to be had, or (an error) nothing, since this host is why.
func replyOf(err error) (there bool, own error) {
	var wait net.Error
	switch {
	case err == nil, errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return true, nil
	case errors.As(err, &wait) && wait.Timeout(), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EHOSTDOWN):
		return false, nil
	}
	return false, err
}

func connect(ctx context.Context, from netip.Addr, to netip.AddrPort) (bool, error) {
	d := net.Dialer{Timeout: patience, KeepAlive: -1}
	if from.Is4() == to.Addr().Is4() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		_ = conn.Close() // it has said what it had to
	}
	return replyOf(err)
}

// echo sends an echo request and waits for its reply.
func echo(ctx context.Context, from, to netip.Addr) (yes bool, err error) {
	network, request, reply := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	d := net.Dialer{Timeout: patience}
	if from.Is4() == to.Is4() {
		d.LocalAddr = &net.IPAddr{IP: from.AsSlice(), Zone: from.Zone()}
	}
	conn, err := d.DialContext(ctx, network, to.String())
	if err != nil {
		_, own := replyOf(err)
		return false, own
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a connection that is closed needs none
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	id, seq := int(rand.Uint32()&0xffff), int(rand.Uint32()&0xffff)
	packet, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("contiv")}}).Marshal(nil)
	if err != nil {
		return false, err
	}
	if _, err := conn.Write(packet); err != nil {
		_, own := replyOf(err)
		return false, own
	}
	proto := map[bool]int{false: unix.IPPROTO_ICMP, true: unix.IPPROTO_ICMPV6}[to.Is6()]
	for buf := make([]byte, 1500); ; {
		n, _, err := conn.(*net.IPConn).ReadFrom(buf) // which leaves the IP header out
		if err != nil {
			_, own := replyOf(err)
			return false, own
		}
		m, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || m.Type != reply {
			continue // of somebody else
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && e.Seq == seq {
			return true, nil
		}
	}
}
