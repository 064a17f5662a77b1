package testcluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Verdict is what became of a probe.
type Verdict string

// The verdicts. Refused means that packets pass both ways but nothing listens.
const (
	OK      Verdict = "ok"
	Denied  Verdict = "denied"
	Refused Verdict = "refused"
)

// Target is what a probe asks: proto is tcp, udp or icmp (ICMPv6 for IPv6).
type Target struct {
	Proto string
	Addr  netip.Addr
	Port  uint16
}

func (t Target) String() string {
	if t.Proto == "icmp" {
		return "icmp " + t.Addr.String()
	}
	return t.Proto + " " + netip.AddrPortFrom(t.Addr, t.Port).String()
}

// Answer is the result of a probe.
type Answer struct {
	Verdict Verdict
	From    string        // name of the container that answered, where Serve listens (tcp, udp)
	At      time.Time     // when it was asked
	Took    time.Duration // until the answer came
	Err     error         // the probe itself could not be made
}

func (a Answer) String() string {
	if a.Err != nil {
		return "error: " + a.Err.Error()
	}
	return string(a.Verdict)
}

// Probe asks a target from inside the namespace and waits at most timeout for
// its answer. Silence is Denied.
func (n *Namespace) Probe(ctx context.Context, t Target, timeout time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	var who string
	var err error
	switch t.Proto {
	case "tcp":
		who, err = n.askTCP(ctx, t)
	case "udp":
		who, err = n.askUDP(ctx, t)
	case "icmp":
		err = n.echo(ctx, t.Addr)
	default:
		return Answer{Err: fmt.Errorf("probe %s: unknown protocol", t)}
	}
	a := Answer{Verdict: OK, From: who, At: start, Took: time.Since(start)}
	var ne net.Error
	switch {
	case err == nil:
	case errors.Is(err, unix.ECONNREFUSED):
		a.Verdict = Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &ne) && ne.Timeout():
		a.Verdict = Denied
	default:
		a.Verdict, a.Err = Denied, fmt.Errorf("probe %s: %w", t, err)
	}
	return a
}

func (n *Namespace) askTCP(ctx context.Context, t Target) (string, error) {
	c, err := n.Dial(ctx, "tcp", netip.AddrPortFrom(t.Addr, t.Port).String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return ask(ctx, c)
}

// askUDP sends the question again every tenth of the time-out: one lost
// datagram must not look like a denial.
func (n *Namespace) askUDP(ctx context.Context, t Target) (string, error) {
	c, err := n.Dial(ctx, "udp", netip.AddrPortFrom(t.Addr, t.Port).String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	every := max(time.Until(end)/10, 20*time.Millisecond)
	for {
		step, cancel := context.WithTimeout(ctx, every)
		who, err := ask(step, c)
		cancel()
		var ne net.Error
		if err == nil || ctx.Err() != nil || !errors.As(err, &ne) || !ne.Timeout() {
			return who, err
		}
	}
}

// ask sends a question and returns the answer, the name of who gave it.
func ask(ctx context.Context, c net.Conn) (string, error) {
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("who\n")); err != nil {
		return "", err
	}
	b := make([]byte, 256)
	k, err := c.Read(b)
	return strings.TrimSpace(string(b[:k])), err
}

var echoID atomic.Uint32

// echo sends ICMP or ICMPv6 echo requests, ten within the time-out, until one
// is answered (RFC 792, RFC 4443).
func (n *Namespace) echo(ctx context.Context, to netip.Addr) error {
	network, any, proto := "ip4:icmp", "0.0.0.0", 1
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		network, any, proto = "ip6:ipv6-icmp", "::", 58
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var c *icmp.PacketConn
	if err := n.Do(func() (err error) { c, err = icmp.ListenPacket(network, any); return err }); err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // what was to come has come
	id := int(echoID.Add(1) & 0xffff)
	token := make([]byte, 8)
	binary.BigEndian.PutUint64(token, uint64(time.Now().UnixNano()))
	msg, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: 1, Data: token}}).Marshal(nil)
	if err != nil {
		return err
	}
	end, _ := ctx.Deadline()
	every := max(time.Until(end)/10, 20*time.Millisecond)
	buf := make([]byte, 1500)
	for ctx.Err() == nil {
		if _, err := c.WriteTo(msg, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(every)); err != nil {
			return err
		}
		for {
			k, from, err := c.ReadFrom(buf)
			if err != nil {
				break // the next request's turn
			}
			m, err := icmp.ParseMessage(proto, buf[:k])
			if err != nil || m.Type != reply || from.(*net.IPAddr).IP.String() != to.String() {
				continue
			}
			if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id && string(e.Data) == string(token) {
				return nil
			}
		}
	}
	return context.Cause(ctx)
}

// Question is one probe of a matrix.
type Question struct {
	From string // container, host, or namespace beyond one
	To   string // container that is to answer, or host or namespace beyond it; empty = a container, which is not checked
	Target
	ByHost *ByHost // when From is no container
}

// AskAll makes many probes in parallel and returns their answers in order.
func (l *Lab) AskAll(ctx context.Context, qs []Question, timeout time.Duration) []Answer {
	out := make([]Answer, len(qs))
	var g errgroup.Group
	g.SetLimit(256) // most wait for silence
	for i, q := range qs {
		g.Go(func() error {
			if ns, err := l.asker(q.From); err != nil {
				out[i] = Answer{Err: err}
			} else {
				out[i] = ns.Probe(ctx, q.Target, timeout)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in the answers
	return out
}

// asker is the namespace of a container or a host.
func (l *Lab) asker(name string) (*Namespace, error) {
	if h, err := l.Host(name); err == nil {
		return h.NS, nil
	}
	return l.Space(name)
}
