package transport

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

func TestPeersHaveAcknowledgedInTime(t *testing.T) {
	for k, want := range map[Kind]int{Peers: int(peerUnackedTimeout.Milliseconds()), Asked: 0} {
		ln, err := ListenAs(t.Context(), k, "127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := ln.(*shared).Listener.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got := -1
		if err := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil || got != want {
			t.Errorf("%v: %d ms, %v, want %d", k, got, err, want)
		}
		_ = ln.Close()
	}
}

func TestListenFailsWhereTheAddressIsTaken(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	ln, err := Listen(t.Context(), "127.0.0.1:0", nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if again, err := Listen(t.Context(), ln.Addr().String(), nil, log); err == nil || again != nil {
		t.Errorf("it listens twice: %v, %v", again, err)
	}
	if secure, plain, err := ListenBoth(t.Context(), ln.Addr().String(), nil, log); err == nil || secure != nil || plain != nil {
		t.Errorf("it listens twice: %v", err)
	}
}

func TestClientsWithoutConfigurationSpeakHTTP(t *testing.T) {
	if Scheme(nil) != HTTP || Scheme(&tls.Config{MinVersion: tls.VersionTLS13}) != HTTPS {
		t.Error("the scheme is not the listener's")
	}
	given := &tls.Config{MinVersion: tls.VersionTLS13}
	if got := Client(nil); got == nil || got.MinVersion != tls.VersionTLS12 || Client(given) != given {
		t.Errorf("%+v", got)
	}
	own := OwnClient(given, "h1", time.Second).Transport.(*http.Transport)
	if own.TLSClientConfig.ServerName != "h1" || !own.DisableKeepAlives || given.ServerName != "" {
		t.Errorf("it asks itself as %q", own.TLSClientConfig.ServerName)
	}
}

// A server does not resume a session: each connection shows its certificate.
func TestSessionsAreNotResumed(t *testing.T) {
	a := authority(t)
	address := serve(t, issue(t, a, "master1", pki.Netmaster).Config().APIServer)
	client := issue(t, a, "anna", pki.ClusterAdmin).Config().APIClient
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 3 {
		conn, err := connect(t, address, client)
		if err != nil {
			t.Fatal(err)
		}
		echoes(t, conn, "a connection")
		if conn.ConnectionState().DidResume {
			t.Error("a session was resumed")
		}
	}
}

func TestTokenFilesOfNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "~~~~~~~~~~~~~~~~")
	f, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if show := f.Source(); show == nil || show() != "~~~~~~~~~~~~~~~~" || (*TokenFile)(nil).Source() != nil {
		t.Error("a token is not shown, or one of no file")
	}
}

func TestSlotsForgetWhoHasNone(t *testing.T) {
	p := NewSlots(3, 2)
	give, _ := p.Acquire(ClientAtRemote("10.0.0.1:5"))
	if give(); len(p.of) != 0 {
		t.Errorf("%v", p.of)
	}
}
