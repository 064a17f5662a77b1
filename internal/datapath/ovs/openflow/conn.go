package openflow

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection to a bridge. It is safe for concurrent use; one owned
// goroutine reads. When the connection breaks, Done is closed and all waiting
// calls fail with the cause.
type Conn struct {
	c       net.Conn
	version uint8
	done    chan struct{}

	wmu sync.Mutex // one message sequence at a time

	packets atomic.Pointer[func(PacketIn)] // receiver of packets; nil = none
	flows   atomic.Pointer[flowWatch]      // nil = changes are not watched

	mu      sync.Mutex
	err     error
	xid     uint32
	waiting []*pending
}

// pending is a call that waits for answers to n numbers from first on.
type pending struct {
	first, n uint32
	ch       chan reply
	done     chan struct{} // closed when the call no longer listens
}

type reply struct {
	version uint8
	typ     uint8
	xid     uint32
	body    []byte
}

// writeWait bounds how long a call that has ended waits until its message is written.
const writeWait = time.Second

// Dial connects to a bridge's management socket (<run dir>/<bridge>.mgmt) and
// agrees on OpenFlow 1.4.
func Dial(ctx context.Context, path string) (*Conn, error) { return dial(ctx, path, version) }

func dial(ctx context.Context, path string, version uint8) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to switch: %w", err)
	}
	c := &Conn{c: nc, version: version, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	r := bufio.NewReaderSize(nc, 1<<16)
	err = c.hello(r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("handshake with the switch at %s: %w", path, err)
	}
	go c.read(r)
	return c, nil
}

// hello greets (OpenFlow 1.4.1 section 6.3.2). It names the one version that c speaks: a
// switch that may choose takes an earlier one where the bridge has not got c's, and then
// refuses whatever comes.
func (c *Conn) hello(r io.Reader) error {
	b := binary.BigEndian.AppendUint32(appendMessage(nil, typeHello, 0), helloVersions<<16|8)
	b = binary.BigEndian.AppendUint32(b, 1<<c.version)
	if _, err := c.c.Write(c.setVersion(finish(b, 0))); err != nil {
		return err
	}
	m, err := readMessage(r, c.version)
	if err != nil {
		return err
	}
	if err := firstError(asError(m)); err != nil {
		return err
	}
	if m.typ != typeHello {
		return fmt.Errorf("first message is of type %d, not hello", m.typ)
	}
	if !offersVersion(m, c.version) {
		return fmt.Errorf("the bridge does not speak OpenFlow version %#x", c.version)
	}
	return nil
}

// helloVersions is the type of a hello's element that has a bitmap of versions.
const helloVersions = 1

// offersVersion reports whether the sender of a hello speaks a version: its bitmap says so, or,
// without one, its own version, which is its highest.
func offersVersion(m reply, version uint8) bool {
	for b := m.body; len(b) >= 4; {
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) {
			break
		}
		if binary.BigEndian.Uint16(b) == helloVersions && n >= 8 {
			return binary.BigEndian.Uint32(b[4:])>>version&1 == 1 // versions to 31
		}
		b = b[min((n+7)/8*8, len(b)):]
	}
	return m.version >= version
}

// setVersion marks messages, which were made in OpenFlow 1.4, as of the connection's
// version.
func (c *Conn) setVersion(b []byte) []byte {
	if c.version == version {
		return b
	}
	for m := b; len(m) >= headerLen; m = m[binary.BigEndian.Uint16(m[2:]):] {
		m[0] = c.version
		if m[1] == typeBundleAdd {
			m[headerLen+8] = c.version
		}
	}
	return b
}

// readMessage reads one message. Messages of other versions are refused, except
// errors, and a hello, which tells the highest version of its sender.
func readMessage(r io.Reader, version uint8) (reply, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return reply{}, err
	}
	n := int(binary.BigEndian.Uint16(h[2:]))
	if n < headerLen {
		return reply{}, fmt.Errorf("message of length %d", n)
	}
	m := reply{version: h[0], typ: h[1], xid: binary.BigEndian.Uint32(h[4:]), body: make([]byte, n-headerLen)}
	if _, err := io.ReadFull(r, m.body); err != nil {
		return reply{}, err
	}
	if h[0] != version && m.typ != typeHello && m.typ != typeError {
		return reply{}, fmt.Errorf("message of OpenFlow version %#x, not %#x", h[0], version)
	}
	return m, nil
}

func (c *Conn) read(r io.Reader) {
	var err error
	for err == nil {
		var m reply
		if m, err = readMessage(r, c.version); err != nil {
			break
		}
		if m.typ == typeEchoRequest {
			b := append(appendMessage(nil, typeEchoReply, m.xid), m.body...)
			c.wmu.Lock()
			_, err = c.c.Write(c.setVersion(finish(b, 0)))
			c.wmu.Unlock()
			continue
		}
		if m.typ == typePacketIn {
			if fn := c.packets.Load(); fn != nil {
				if p, err := readPacketIn(m.body); err == nil { // of another version: not ours
					(*fn)(p)
				}
			}
			continue
		}
		if m.typ == typeMultipartRep && m.xid == 0 {
			c.flows.Load().notify(m)
			continue
		}
		if p := c.find(m.xid); p != nil {
			select {
			case p.ch <- m:
			case <-p.done:
			}
		}
	}
	c.mu.Lock()
	if c.err == nil {
		c.err = fmt.Errorf("connection to switch was lost: %w", err)
	}
	c.mu.Unlock()
	c.c.Close()
	close(c.done)
}

func (c *Conn) find(xid uint32) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.waiting {
		if xid-p.first < p.n {
			return p
		}
	}
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and waits for its goroutine.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	c.mu.Unlock()
	err := c.c.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// exchange reserves n consecutive numbers, sends the messages that build makes when
// given the first number, and passes every answer that has one of the numbers to
// on, until on returns done or an error.
func (c *Conn) exchange(ctx context.Context, n uint32, build func(xid uint32) ([]byte, error), on func(reply) (bool, error)) error {
	c.mu.Lock()
	first := c.xid + 1
	if first == 0 || first+n < first { // numbers wrap; zero is not used
		first = 1
	}
	c.xid = first + n - 1
	c.mu.Unlock()
	return c.exchangeAt(ctx, first, n, build, on)
}

// exchangeAt is exchange with numbers that the caller owns already.
func (c *Conn) exchangeAt(ctx context.Context, first, n uint32, build func(xid uint32) ([]byte, error), on func(reply) (bool, error)) error {
	p := &pending{first: first, n: n, ch: make(chan reply, 64), done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, p)
	c.mu.Unlock()
	defer func() {
		close(p.done)
		c.mu.Lock()
		c.waiting = slices.DeleteFunc(c.waiting, func(o *pending) bool { return o == p })
		c.mu.Unlock()
	}()
	b, err := build(p.first)
	if err != nil {
		return err
	}
	b = c.setVersion(b)
	wrote := make(chan error, 1)
	go func() {
		c.wmu.Lock()
		defer c.wmu.Unlock()
		_, err := c.c.Write(b)
		wrote <- err
	}()
	defer func() { // a write that hangs ends with the connection
		if wrote != nil {
			<-wrote //nolint:errcheck // what ended the call tells more
		}
	}()
	for {
		select {
		case <-ctx.Done():
			if wrote == nil {
				return ctx.Err()
			}
			select { // a message that is cut ends the connection, one that is sent harms nothing
			case <-wrote: //nolint:errcheck // what ended the call tells more
				wrote = nil
			case <-time.After(writeWait):
				c.c.Close()
			}
			return ctx.Err()
		case err := <-wrote:
			wrote = nil
			if err != nil {
				return fmt.Errorf("send to switch: %w", err)
			}
		case m := <-p.ch:
			if done, err := on(m); done || err != nil {
				return err
			}
		case <-c.done:
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.err
		}
	}
}

// Commit applies all changes in order as one atomic bundle: packets see either
// none or all of them, and an error means none. A refusal names the flow.
func (c *Conn) Commit(ctx context.Context, mods []Mod) error {
	return c.bundle(ctx, len(mods),
		func(b []byte, xid uint32, i int) ([]byte, error) { return appendFlowMod(b, xid, mods[i]) },
		func(i int) string { return "flow " + describe(mods[i]) })
}

// bundle commits n messages, which add makes; name names them.
func (c *Conn) bundle(ctx context.Context, count int, add func(b []byte, xid uint32, i int) ([]byte, error), name func(i int) string) error {
	if count == 0 {
		return nil
	}
	n := uint32(count)
	var first uint32
	build := func(xid uint32) ([]byte, error) {
		first = xid
		b := appendBundle(make([]byte, 0, 256*count+64), xid, xid, bundleOpen)
		var err error
		for i := range count {
			if b, err = appendBundleAdd(b, xid+1+uint32(i), xid, func(b []byte, xid uint32) ([]byte, error) { return add(b, xid, i) }); err != nil {
				return nil, err
			}
		}
		return finish(appendMessage(b, typeBarrierReq, xid+n+1), len(b)), nil
	}
	// A message that the switch refuses is left out of the bundle and does not
	// fail it, so the commit waits until all are known to be in.
	var refusal error
	err := c.exchange(ctx, n+2, build, func(m reply) (bool, error) {
		if m.typ == typeBarrierRep {
			return true, nil
		}
		e, err := asError(m)
		if err != nil {
			return true, err
		}
		i := m.xid - first
		if e != nil && refusal == nil {
			refusal = e
			if i >= 1 && i <= n {
				refusal = fmt.Errorf("change %s: %w", name(int(i-1)), e)
			}
		}
		return i == n+1, nil // the barrier is refused: nothing else comes
	})
	if err != nil {
		return err
	}
	end, ended := uint16(bundleCommit), uint16(bundleCommitted)
	if refusal != nil {
		end, ended = bundleDiscard, bundleDiscarded
	}
	id := first
	// Errors found at commit carry the number of the message at fault.
	err = c.exchangeAt(ctx, first, n+2, func(xid uint32) ([]byte, error) {
		return appendBundle(nil, xid+n+1, id, end), nil
	}, func(m reply) (bool, error) {
		e, err := asError(m)
		switch i := m.xid - first; {
		case err != nil:
			return true, err
		case e != nil && i >= 1 && i <= n && refusal == nil:
			refusal = fmt.Errorf("change %s: %w", name(int(i-1)), e)
			return false, nil
		case e != nil && refusal == nil:
			return true, fmt.Errorf("commit %d changes: %w", n, e)
		case e != nil:
			return true, nil //nolint:nilerr // the first refusal is what the caller gets
		}
		return m.typ == typeBundleControl && len(m.body) >= 8 && binary.BigEndian.Uint16(m.body[4:]) == ended, nil
	})
	if refusal != nil {
		return refusal
	}
	return err
}

// asError decodes a message if it is an error.
func asError(m reply) (*Error, error) {
	if m.typ != typeError {
		return nil, nil
	}
	return readError(m.body)
}

func describe(m Mod) string {
	switch {
	case m.All:
		return fmt.Sprintf("deletion by cookie %#x/%#x", m.Flow.Cookie, m.CookieMask)
	case m.Delete:
		return "deletion of " + m.Flow.String()
	}
	return m.Flow.String()
}

// firstError is the decoded error, or why it could not be decoded.
func firstError(e *Error, err error) error {
	if err != nil {
		return err
	}
	if e == nil {
		return nil
	}
	return e
}

// multipart sends a request and passes the body of every part of the answer on.
func (c *Conn) multipart(ctx context.Context, what string, build func(xid uint32) []byte, part func([]byte) error) error {
	err := c.exchange(ctx, 1, func(xid uint32) ([]byte, error) { return build(xid), nil }, func(m reply) (bool, error) {
		switch m.typ {
		case typeError:
			return true, firstError(asError(m))
		case typeMultipartRep:
			if len(m.body) < 8 {
				return true, fmt.Errorf("reply cut short: %d bytes", len(m.body))
			}
			more := binary.BigEndian.Uint16(m.body[2:])&1 == 1
			return !more, part(m.body[8:])
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// DumpFlows passes every selected flow to yield, in no particular order.
func (c *Conn) DumpFlows(ctx context.Context, f Filter, yield func(FlowStats)) error {
	return c.multipart(ctx, "dump flows",
		func(xid uint32) []byte { return appendFlowStatsRequest(nil, xid, f) },
		func(b []byte) error { return readFlowStats(b, f.Used, yield) })
}

// Ports lists the bridge's ports.
func (c *Conn) Ports(ctx context.Context) ([]PortDesc, error) {
	var out []PortDesc
	err := c.multipart(ctx, "list ports",
		func(xid uint32) []byte { return appendPortRequest(nil, xid, multipartPortDesc) },
		func(b []byte) error { return readPortDesc(b, func(p PortDesc) { out = append(out, p) }) })
	return out, err
}

// PortStats reads the counters of all ports.
func (c *Conn) PortStats(ctx context.Context) ([]PortStats, error) {
	var out []PortStats
	err := c.multipart(ctx, "read port counters",
		func(xid uint32) []byte { return appendPortRequest(nil, xid, multipartPortStats) },
		func(b []byte) error { return readPortStats(b, func(p PortStats) { out = append(out, p) }) })
	return out, err
}

// Barrier returns when the switch has processed all that was sent before.
func (c *Conn) Barrier(ctx context.Context) error {
	return c.exchange(ctx, 1, func(xid uint32) ([]byte, error) {
		return finish(appendMessage(nil, typeBarrierReq, xid), 0), nil
	}, func(m reply) (bool, error) {
		return m.typ == typeBarrierRep, firstError(asError(m))
	})
}
