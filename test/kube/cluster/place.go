package cluster

import (
	"context"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// Services are the cluster addresses of services; the first one is the API server's.
const Services = "10.96.0.0/16"

var firstService = netip.MustParsePrefix(Services).Addr().Next()

// Services6 are those of IPv6, where there are such.
const Services6 = "fd00:96::/112"

// Balanced are the addresses of load balancers; services' external addresses are in External.
// Where machines have both families, Balanced is in a subnet of their link, and a node
// answers for what is given of it.
const (
	Balanced = "198.51.100.128/25"
	External = "203.0.113.0/24"
)

// beyond is a machine's address in the subnet of Balanced: clients in the subnet of the
// nodes' own addresses have none there.
func beyond(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, a.As4()[3]}), 24)
}

// Place is where a control plane listens.
type Place struct {
	Space   *testcluster.Namespace // nil = where the test's process is
	Address netip.Addr
	Dual    bool   // services have addresses of both families
	Gates   string // the API server's --feature-gates; empty = as they are
}

func (p Place) services() string {
	if p.Dual {
		return Services + "," + Services6
	}
	return Services
}

func (p Place) url(port string) string {
	return "https://" + net.JoinHostPort(p.Address.String(), port)
}

// command is argv run in the place.
func (p Place) command(argv ...string) []string {
	if p.Space == nil {
		return argv
	}
	return append([]string{"nsenter", "--net=" + p.Space.Path(), "--"}, argv...) // it becomes the program
}

// do runs f where the place's sockets are.
func (p Place) do(f func() error) error {
	if p.Space == nil {
		return f()
	}
	return p.Space.Do(f)
}

func (p Place) listen(ctx context.Context, address string) (ln net.Listener, err error) {
	err = p.do(func() error {
		ln, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		return err
	})
	return ln, err
}

// freePort returns an unused TCP port of the place's address. Another process may take it
// first; then the process that wanted it fails with an error.
func (p Place) freePort(ctx context.Context) (string, error) {
	l, err := p.listen(ctx, net.JoinHostPort(p.Address.String(), "0"))
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return strconv.Itoa(port), l.Close()
}

// forwarder lets those in a place reach a server of the test's process.
type forwarder struct {
	ln    net.Listener
	to    string
	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed
	wg    sync.WaitGroup
}

// open makes a forwarder to the server at a URL, and returns the URL that leads there.
func (p Place) open(ctx context.Context, server string) (*forwarder, string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, "", err
	}
	d, err := p.openAt(ctx, "127.0.0.1:0", u.Host)
	if err != nil {
		return nil, "", err
	}
	u.Host = d.ln.Addr().String()
	return d, u.String(), nil
}

// openAt makes a forwarder at an address of the place.
func (p Place) openAt(ctx context.Context, address, to string) (*forwarder, error) {
	ln, err := p.listen(ctx, address)
	if err != nil {
		return nil, err
	}
	d := &forwarder{ln: ln, to: to, conns: map[net.Conn]bool{}}
	d.wg.Go(d.serve)
	return d, nil
}

// LeadFrom lets those in a namespace reach the API server, which is outside of it, at its own
// address until close is called.
func (c *Control) LeadFrom(ctx context.Context, ns *testcluster.Namespace) (close func() error, err error) {
	at := net.JoinHostPort(c.at.Address.String(), c.port)
	d, err := Place{Space: ns}.openAt(ctx, at, at)
	if err != nil {
		return nil, err
	}
	return d.close, nil
}

func (d *forwarder) serve() {
	for {
		in, err := d.ln.Accept()
		if err != nil {
			return // closed
		}
		d.wg.Go(func() { d.pass(in) })
	}
}

// pass joins a connection with one to the server until either ends.
func (d *forwarder) pass(in net.Conn) {
	defer func() { _ = in.Close() }() // either end may have
	if !d.keep(in) {
		return
	}
	out, err := new(net.Dialer).DialContext(context.Background(), "tcp", d.to)
	if err != nil || !d.keep(out) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		ways.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // its end is the connection's
			_, _ = in.Close(), out.Close()
		})
	}
	ways.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, in)
	delete(d.conns, out)
}

// keep reports whether the forwarder is open; then close ends the connection.
func (d *forwarder) keep(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		_ = c.Close() // unused
		return false
	}
	d.conns[c] = true
	return true
}

// close ends the forwarder and what came through it, and returns when all has ended.
func (d *forwarder) close() error {
	if d == nil {
		return nil
	}
	err := d.ln.Close()
	d.mu.Lock()
	for c := range d.conns {
		_ = c.Close() // either end may have
	}
	d.conns = nil
	d.mu.Unlock()
	d.wg.Wait()
	return err
}
