package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The schemes that a URL, and a record of the service registry, may have.
const (
	HTTP  = "http"
	HTTPS = "https"
)

// Config is how the connections of one process are secured, by the end that the
// process is. A listener without a configuration is plain. A client without one
// trusts the system's certificate authorities; whether it speaks TLS at all is
// said by the address that it is given.
type Config struct {
	APIServer        *tls.Config // netmaster's listeners: for people, other netmasters and agents
	APIClient        *tls.Config // clients of netmaster: netctl, agents, netmaster's check of itself
	StoreServer      *Files      // the embedded etcd, for its clients; it has no peers
	StoreClient      *tls.Config // netmasters and agents of an etcd
	InspectionServer *tls.Config // netplugin's --rest-address, which tells who shows no certificate next to nothing
	DebugServer      *tls.Config // profiling of netmaster and netplugin
}

// Files name a certificate in PEM. The embedded etcd takes nothing else, and
// reads the certificate again at each handshake.
type Files struct {
	Cert, Key string
	ClientCA  string // whose clients are let in; empty = all
}

// Listen listens on TCP, with TLS unless server is nil. It closes connections beyond
// MaxConnections, and beyond an address's share, as they come, and logs that. The error is
// net's.
func Listen(ctx context.Context, addr string, server *tls.Config, log *slog.Logger) (net.Listener, error) {
	return ListenAs(ctx, Asked, addr, server, log)
}

// ListenAs is Listen for listeners of a kind.
func ListenAs(ctx context.Context, k Kind, addr string, server *tls.Config, log *slog.Logger) (net.Listener, error) {
	var lc net.ListenConfig
	if k == Peers {
		lc.Control = unackedWithin(peerUnackedTimeout)
	}
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	ln = process()[k].listen(ln, log) // below TLS, whose connections net/http knows by their type
	if server == nil {
		return ln, nil
	}
	return tls.NewListener(ln, server), nil
}

// peerUnackedTimeout is how long the client of a Peers connection may leave data unacknowledged.
// Etcd writes raft's messages to such connections without a limit. After a partition TCP
// would send them again only seconds to minutes later, as its timeout doubles each time.
// Once the connection has failed etcd sends each message by a new one.
const peerUnackedTimeout = 2 * time.Second

// unackedWithin sets TCP_USER_TIMEOUT (RFC 5482), which accepted connections inherit.
func unackedWithin(d time.Duration) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
		return errors.Join(err, set)
	}
}

// Scheme is what clients of a listener put before its address.
func Scheme(server *tls.Config) string {
	if server == nil {
		return HTTP
	}
	return HTTPS
}

// Secure makes URLs, separated by commas, https where they name no scheme, with a port
// where they have none; a plain one is refused.
func Secure(urls, port string) (string, error) {
	if urls == "" {
		return "", nil
	}
	list := strings.Split(urls, ",")
	for i, s := range list {
		s = strings.TrimSpace(s)
		switch {
		case strings.HasPrefix(s, HTTP+"://"):
			return "", fmt.Errorf("%s is without TLS, and this program has a certificate: write https://, or omit the address", s)
		case !strings.Contains(s, "://"):
			if _, _, err := net.SplitHostPort(s); err != nil {
				s = net.JoinHostPort(strings.Trim(s, "[]"), port)
			}
			s = HTTPS + "://" + s
		}
		list[i] = s
	}
	return strings.Join(list, ","), nil
}

// Client returns what a client of an https address uses: what was configured,
// or the system's authorities.
func Client(client *tls.Config) *tls.Config {
	if client != nil {
		return client
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

// Pool returns connections to an HTTP API that are kept, as many to each server as
// idle says, since that many wait at a time; connecting takes at most timeout.
func Pool(client *tls.Config, idle int, timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: timeout, KeepAlive: 6 * time.Second}).DialContext,
		TLSClientConfig:     Client(client),
		TLSHandshakeTimeout: timeout,
		MaxIdleConnsPerHost: idle,
		IdleConnTimeout:     time.Minute,
	}
}

// OwnClient returns a client with which a process checks its own listener, each time by a
// new connection and for at most timeout. Whatever it connects to, the certificate must be
// valid for host, the name that others use.
func OwnClient(client *tls.Config, host string, timeout time.Duration) *http.Client {
	c := Client(client).Clone()
	c.ServerName = host
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}, Timeout: timeout}
}
