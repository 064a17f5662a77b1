package bgp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// deadline bounds what a test waits for, on a machine under any load.
const deadline = 90 * time.Second

// keepalive is rare: what a router says while the speaker closes the connection
// makes TCP drop the speaker's last words.
const keepalive = 15 * time.Second

// router is a hand-written neighbor: it dials the speaker, opens, and keeps what it
// receives. It shares the messages' codec with the speaker and nothing else.
type router struct {
	t     testing.TB
	addr  netip.Addr
	as    uint32
	still bool // it wants no keepalives, and sends but the first

	mu       sync.Mutex
	conn     net.Conn
	routes   map[netip.Prefix]netip.Addr // told by the speaker, with the next hop
	updates  int                         // messages that changed them
	ended    bool                        // the speaker has told all
	notified *bgp.BGPNotification
	open     *bgp.BGPOpen // of the speaker
	changes  waiting.Changes
	done     sync.WaitGroup
}

// connect dials until the speaker takes the session.
func connect(t testing.TB, addr string, as uint32, h *host) *router {
	t.Helper()
	r := &router{t: t, addr: netip.MustParseAddr(addr), as: as}
	r.dial(h.at)
	t.Cleanup(func() {
		h.close(false) // first: what the router loses is no restart then
		r.hangUp()
	})
	return r
}

func (r *router) dial(speaker netip.AddrPort) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), deadline)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = r.try(ctx, speaker); err == nil {
			return
		}
		_ = waiting.Pause(ctx, 20*time.Millisecond) // the loop sees the end
	}
	r.t.Fatalf("router %s gets no session: %v", r.addr, err)
}

func (r *router) try(ctx context.Context, speaker netip.AddrPort) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: r.addr.AsSlice()}}
	conn, err := d.DialContext(ctx, "tcp", speaker.String())
	if err != nil {
		return err
	}
	hello := func() error {
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if err := send(conn, r.hello()); err != nil {
			return err
		}
		m, err := read(conn)
		if err != nil {
			return err
		}
		open, ok := m.Body.(*bgp.BGPOpen)
		if !ok {
			return fmt.Errorf("it began with a message of type %d", m.Header.Type)
		}
		if err := send(conn, bgp.NewBGPKeepAliveMessage()); err != nil {
			return err
		}
		if m, err = read(conn); err != nil {
			return err
		}
		if m.Header.Type != bgp.BGP_MSG_KEEPALIVE {
			return fmt.Errorf("it answered the OPEN by a message of type %d", m.Header.Type)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conn, r.open, r.notified, r.ended, r.routes = conn, open, nil, false, map[netip.Prefix]netip.Addr{}
		return conn.SetDeadline(time.Time{})
	}
	if err := hello(); err != nil {
		return errors.Join(err, conn.Close())
	}
	if r.still {
		r.done.Go(func() { r.listen(conn) })
		return nil
	}
	ctx, stop := context.WithCancel(context.Background()) // listen ends it, when the connection does
	r.done.Go(func() { r.listen(conn); stop() })
	r.done.Go(func() {
		for waiting.Pause(ctx, keepalive) == nil {
			if send(conn, bgp.NewBGPKeepAliveMessage()) != nil {
				return
			}
		}
	})
	return nil
}

func (r *router) hello() *bgp.BGPMessage {
	as := bgp.AS_TRANS
	if r.as < 1<<16 {
		as = int(r.as)
	}
	graceful := bgp.NewCapGracefulRestart(false, false, 30, []*bgp.CapGracefulRestartTuple{
		bgp.NewCapGracefulRestartTuple(bgp.RF_IPv4_UC, true), bgp.NewCapGracefulRestartTuple(bgp.RF_IPv6_UC, true),
	})
	caps := []bgp.ParameterCapabilityInterface{
		bgp.NewCapMultiProtocol(bgp.RF_IPv4_UC), bgp.NewCapMultiProtocol(bgp.RF_IPv6_UC), bgp.NewCapFourOctetASNumber(r.as), graceful,
	}
	hold := uint16(60)
	if r.still {
		hold = 0
	}
	m, err := bgp.NewBGPOpenMessage(uint16(as), hold, r.addr, []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(caps)})
	if err != nil {
		r.t.Errorf("make an OPEN: %v", err)
	}
	return m
}

func send(w io.Writer, m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func read(r io.Reader) (*bgp.BGPMessage, error) {
	head := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if !bytes.Equal(head[:16], bytes.Repeat([]byte{0xff}, 16)) {
		return nil, errors.New("no marker")
	}
	body := make([]byte, int(binary.BigEndian.Uint16(head[16:]))-len(head))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return bgp.ParseBGPMessage(append(head, body...))
}

// listen keeps what the speaker tells until the connection ends.
func (r *router) listen(conn net.Conn) {
	for {
		m, err := read(conn)
		if err != nil {
			_ = conn.Close() // it has ended
			return
		}
		r.mu.Lock()
		switch body := m.Body.(type) {
		case *bgp.BGPUpdate:
			r.update(body)
		case *bgp.BGPNotification:
			r.notified = body
		}
		r.mu.Unlock()
		r.changes.Notify()
	}
}

func (r *router) update(u *bgp.BGPUpdate) {
	if end, _ := u.IsEndOfRib(); end {
		r.ended = true
		return
	}
	r.updates++
	prefix := func(n bgp.PathNLRI) netip.Prefix { return n.NLRI.(*bgp.IPAddrPrefix).Prefix }
	for _, n := range u.WithdrawnRoutes {
		delete(r.routes, prefix(n))
	}
	for _, a := range u.PathAttributes {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			for _, n := range u.NLRI {
				r.routes[prefix(n)] = a.Value
			}
		case *bgp.PathAttributeMpReachNLRI:
			for _, n := range a.Value {
				r.routes[prefix(n)] = a.Nexthop
			}
		case *bgp.PathAttributeMpUnreachNLRI:
			for _, n := range a.Value {
				delete(r.routes, prefix(n))
			}
		}
	}
}

// until waits for what is true of the router.
func (r *router) until(what string, ok func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), deadline)
	defer cancel()
	err := r.changes.Until(ctx, func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return ok(), nil
	})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.t.Fatalf("router %s: %s: %v; it has %v, notified %+v", r.addr, what, err, r.routes, r.notified)
	}
}

// has waits until the speaker has told exactly these.
func (r *router) has(want map[string]string) {
	r.t.Helper()
	routes := map[netip.Prefix]netip.Addr{}
	for p, hop := range want {
		routes[netip.MustParsePrefix(p)] = netip.MustParseAddr(hop)
	}
	r.until(fmt.Sprintf("wait for %v", want), func() bool { return maps.Equal(r.routes, routes) })
}

// way is what a router says of prefixes.
type way struct {
	hop    string
	asPath []uint32 // nil = the router's own
}

// tell announces prefixes of one family.
func (r *router) tell(w way, prefixes ...string) {
	r.t.Helper()
	r.send(r.announcement(w, prefixes))
}

func (r *router) announcement(w way, prefixes []string) *bgp.BGPMessage {
	r.t.Helper()
	if w.asPath == nil {
		w.asPath = []uint32{r.as}
	}
	attrs := []bgp.PathAttributeInterface{
		bgp.NewPathAttributeOrigin(0),
		bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, w.asPath)}),
	}
	list, hop := nlri(r.t, prefixes), netip.MustParseAddr(w.hop)
	if !netip.MustParsePrefix(prefixes[0]).Addr().Is4() {
		a, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_IPv6_UC, list, hop)
		if err != nil {
			r.t.Fatal(err)
		}
		attrs, list = append(attrs, a), nil
	} else {
		a, err := bgp.NewPathAttributeNextHop(hop)
		if err != nil {
			r.t.Fatal(err)
		}
		attrs = append(attrs, a)
	}
	return bgp.NewBGPUpdateMessage(nil, attrs, list)
}

// takeBack withdraws IPv4 prefixes.
func (r *router) takeBack(prefixes ...string) {
	r.t.Helper()
	r.send(bgp.NewBGPUpdateMessage(nlri(r.t, prefixes), nil, nil))
}

func (r *router) send(m *bgp.BGPMessage) {
	r.t.Helper()
	if err := send(r.connection(), m); err != nil {
		r.t.Fatalf("router %s: %v", r.addr, err)
	}
}

func (r *router) connection() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn
}

func nlri(t testing.TB, prefixes []string) (out []bgp.PathNLRI) {
	t.Helper()
	for _, p := range prefixes {
		n, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(p))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bgp.PathNLRI{NLRI: n})
	}
	return out
}

// endOfRIB says that all was told.
func (r *router) endOfRIB() {
	r.send(bgp.NewEndOfRib(bgp.RF_IPv4_UC))
	r.send(bgp.NewEndOfRib(bgp.RF_IPv6_UC))
}

// hangUp ends the connection without a word.
func (r *router) hangUp() {
	if c := r.connection(); c != nil {
		_ = c.Close() // it may have ended
	}
	r.done.Wait()
}

// freePort finds a port of the loopback address that no process listens on.
func freePort(t testing.TB) uint16 {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it was made to be closed
	_, port, _ := net.SplitHostPort(l.Addr().String())
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}

// marksStale leaves a test out under the race detector: when the connection of a
// neighbor that can restart breaks, gobgp 4.8.0 marks its paths stale (a bool of
// table.Path) while ListPath reads that after it let go of its lock. The event
// that follows has all read again.
func marksStale(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("gobgp: Path.MarkStale races with ListPath")
	}
}

// goodbye is what a router says that ends its session for good.
func goodbye() *bgp.BGPMessage {
	return bgp.NewBGPNotificationMessage(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN, nil)
}
