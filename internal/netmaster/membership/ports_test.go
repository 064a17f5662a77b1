package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// flood keeps as many connections to an address as it may, of n, from one address, and
// says nothing on them. It returns how many were closed at once, and how many were tried.
func flood(t *testing.T, from, to string, n int) (closed, tried *atomic.Int64) {
	t.Helper()
	closed, tried = new(atomic.Int64), new(atomic.Int64)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	places := make(chan struct{}, n)
	running.Go(func() {
		for ctx.Err() == nil {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c, err := d.DialContext(ctx, "tcp", to)
			tried.Add(1)
			if err != nil {
				closed.Add(1)
				<-places
				continue
			}
			end := context.AfterFunc(ctx, func() { _ = c.Close() })
			running.Go(func() {
				if _, err := io.Copy(io.Discard, c); errors.Is(err, syscall.ECONNRESET) {
					closed.Add(1)
				}
				end()
				_ = c.Close()
				<-places
			})
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return closed, tried
}

// TestFloodKeepsNoClientOut: one address that holds all its connections to each port of a member keeps no
// other client out. The member writes, and hosts join and are replaced.
func TestFloodKeepsNoClientOut(t *testing.T) {
	const files = 640
	a := newNode(t, 61, "a").run(order{Files: files}).ready()
	token := a.token()
	for what, to := range map[string]string{"clients": a.cfg.Client, "members": a.cfg.Peer, "who joins": a.cfg.EnrollmentAddress} {
		closed, tried := flood(t, "127.0.0.77", to, 2*files)
		eventually(t, "a flood of the port of "+what, func(context.Context) error {
			if closed.Load() < files || tried.Load() < 2*files {
				return fmt.Errorf("%d of %d connections were closed", closed.Load(), tried.Load())
			}
			return nil
		})
	}
	writes(t, a)
	b := newNode(t, 62, "b").join(token)
	b.start().ready()
	writes(t, b, a)
	b.kill()
	b.start().ready()
	writes(t, a, b)
}

// TestClientPortAnswersAsEtcd: the port for clients answers by gRPC and HTTP as an etcd's does: plainly,
// by TLS to who shows a certificate, and by both at one address; a stranger's connection
// ends, and so does a client's when the member is closed.
func TestClientPortAnswersAsEtcd(t *testing.T) {
	t.Parallel()
	plain, secure, both := config(t, 63, "a"), secured(t, 64, "b"), secured(t, 65, "c")
	both.Plain = []string{both.Client}
	for what, cfg := range map[string]Config{"plain": plain, "secure": secure, "both": both} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := start(t, cfg)
			tried := []*tls.Config{}
			if cfg.Secure == nil || cfg.Plain != nil {
				tried = append(tried, nil)
			}
			if cfg.Secure != nil {
				tried = append(tried, as(t, m, pki.Netmaster))
				pool := transport.Pool(&tls.Config{InsecureSkipVerify: true}, 1, patient)
				defer pool.CloseIdleConnections()
				if status, text := webGet(t, pool, "https://"+cfg.Client+"/version"); status == http.StatusOK {
					t.Errorf("a stranger is answered %q", text)
				}
				if cfg.Plain == nil { // an HTTP server's answer that it speaks TLS is enough, whichever server listens there
					if status, text := webGet(t, pool, "http://"+cfg.Client+"/version"); status != http.StatusBadRequest || strings.Contains(text, "etcd") {
						t.Errorf("who comes plainly is answered %d %q", status, text)
					}
				}
			}
			for _, c := range tried {
				pool := transport.Pool(c, 1, patient)
				defer pool.CloseIdleConnections()
				for path, want := range map[string]string{"/version": "etcdserver", "/health": `"health":"true"`, "/metrics": "etcd_server_has_leader"} {
					if status, text := webGet(t, pool, transport.Scheme(c)+"://"+cfg.Client+path); status != http.StatusOK || !strings.Contains(text, want) {
						t.Errorf("%s, TLS %t: %d %q", path, c != nil, status, text)
					}
				}
				cli, err := clientv3.New(clientv3.Config{Endpoints: []string{transport.Scheme(c) + "://" + cfg.Client}, TLS: c, Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = cli.Close() }()
				if _, err := cli.Put(t.Context(), "test/x", "x"); err != nil {
					t.Errorf("TLS %t: %v", c != nil, err)
				}
				if w := <-cli.Watch(t.Context(), "test/x", clientv3.WithRev(1)); w.Err() != nil || len(w.Events) == 0 {
					t.Errorf("TLS %t: %+v", c != nil, w)
				}
			}
			var d net.Dialer
			c, err := d.DialContext(t.Context(), "tcp", cfg.Client)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetReadDeadline(time.Now().Add(patient))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Error("a stranger's connection does not end")
			}
		})
	}
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// webGet asks by HTTP; status 0 = there was no answer, and text says why.
func webGet(t *testing.T, pool *http.Transport, url string) (status int, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&http.Client{Transport: pool}).Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// TestIdleConnectionsAreClosed: who says nothing is given up, and a deadline that was asked for holds.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of this machine
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	theirs, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = theirs.Close() }()
	ours, err := deadlineListener{ln}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	late := time.AfterFunc(patient, func() { _ = ours.Close() })
	defer late.Stop()
	b := make([]byte, 1)
	if _, err := ours.Read(b); !isTimeout(err) {
		t.Errorf("nothing comes: %v", err)
	}
	if _, err := theirs.Write(b); err != nil {
		t.Fatal(err)
	}
	_ = ours.SetDeadline(time.Unix(1, 0))
	if _, err := ours.Read(b); !isTimeout(err) {
		t.Errorf("after the deadline: %v", err)
	}
	_ = ours.SetDeadline(time.Time{})
	if _, err := ours.Read(b); err != nil {
		t.Errorf("without one: %v", err)
	}
	var full error
	for full == nil { // until the other end takes no more
		_, full = ours.Write(make([]byte, 1<<20))
	}
	if !isTimeout(full) {
		t.Errorf("nothing is taken: %v", full)
	}
}
