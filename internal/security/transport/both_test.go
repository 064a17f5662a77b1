package transport

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// The half that is left goes on when the other is closed, and the address is free after both.
func TestListenBothClosesWithItsSecondHalf(t *testing.T) {
	secure, plain, err := ListenBoth(t.Context(), "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // closing again is not closing the other
		if err := secure.Close(); err != nil {
			t.Error(err)
		}
	}
	go func() {
		if conn, err := plain.Accept(); err == nil {
			_, _ = conn.Write([]byte("!"))
			_ = conn.Close()
		}
	}()
	conn, err := net.Dial("tcp", plain.Addr().String()) //nolint:noctx // of this machine
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte("GET /")); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "!" {
		t.Errorf("the other half answers %q, %v", got, err)
	}
	_ = conn.Close()
	if err := plain.Close(); err != nil {
		t.Error(err)
	}
	again, err := net.Listen("tcp", plain.Addr().String()) //nolint:noctx // of this machine
	if err != nil {
		t.Fatalf("the address is taken still: %v", err)
	}
	_ = again.Close()
}

// TestOneAddressServesTLSAndPlain: at one address who speaks TLS is known by a certificate, and who does
// not is served too, while a third says nothing at all.
func TestOneAddressServesTLSAndPlain(t *testing.T) {
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Issue(pki.Request{Name: "master1", Role: pki.Netmaster})
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenDirectory(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	secure, plain, err := ListenBoth(t.Context(), "127.0.0.1:0", d.Server(pki.Netmaster), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.TLS != nil && r.TLS.PeerCertificates[0].Subject.CommonName == "master1")
	})}
	ended := make(chan error, 2)
	for _, ln := range []net.Listener{secure, plain} {
		go func() { ended <- srv.Serve(ln) }()
	}
	silent, err := net.Dial("tcp", plain.Addr().String()) //nolint:noctx // of this machine
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for scheme, want := range map[string]string{"http": "false", "https": "true"} {
		client := &http.Client{Transport: Pool(d.Client(pki.Netmaster), 1, time.Minute), Timeout: time.Minute}
		resp, err := client.Get(scheme + "://" + plain.Addr().String()) //nolint:noctx // it has a time limit
		if err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		if err != nil || string(body) != want {
			t.Errorf("%s: known by a certificate: %s, %v", scheme, body, err)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("Serve ended without a reason")
		}
	}
	if again, err := net.Listen("tcp", plain.Addr().String()); err != nil { //nolint:noctx // of this machine
		t.Errorf("the address is taken still: %v", err)
	} else {
		_ = again.Close()
	}
}
