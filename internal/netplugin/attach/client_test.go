package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// serve runs an HTTP server on a unix socket.
func serve(t *testing.T, h http.HandlerFunc) Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "n-attach-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return Client{Socket: filepath.Join(dir, "s")}
}

// TestClientAgainstNetHTTP sends a request to Go's own server and reads a long
// answer of it.
func TestClientAgainstNetHTTP(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var in Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Container != "c1" || r.URL.Path != PathAttach {
			t.Errorf("request %s %+v, %v", r.URL.Path, in, err)
		}
		if err := json.NewEncoder(w).Encode(Result{Endpoint: long}); err != nil {
			t.Error(err)
		}
	})
	res, err := c.Attach(t.Context(), Request{Key: Key{"c1", "eth0"}})
	if err != nil || res.Endpoint != long {
		t.Errorf("answer of %d bytes, %v", len(res.Endpoint), err)
	}
}

// TestErrorKindsCrossTheSocket keeps kinds and sentences across the socket.
func TestErrorKindsCrossTheSocket(t *testing.T) {
	for _, kind := range []error{
		model.ErrInvalid, model.ErrNotFound, model.ErrExists, model.ErrConflict, model.ErrInUse,
		model.ErrExhausted, model.ErrUnavailable, ErrDegraded,
	} {
		t.Run(kind.Error(), func(t *testing.T) {
			want := model.Errorf(kind, "the sentence")
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				f, status := NewFailure(want)
				w.WriteHeader(status)
				if err := json.NewEncoder(w).Encode(f); err != nil {
					t.Error(err)
				}
			})
			err := c.Ready(t.Context())
			if !errors.Is(err, kind) || err.Error() != "the sentence" {
				t.Errorf("error %v, want the sentence of kind %v", err, kind)
			}
			if errors.Is(err, ErrDegraded) != errors.Is(kind, ErrDegraded) {
				t.Errorf("degraded: %v", errors.Is(err, ErrDegraded))
			}
		})
	}
}

// TestDeadSocketsAreUnreachable: no socket, a dead socket, a server that never answers, and
// one that answers nonsense are all ErrUnreachable.
func TestDeadSocketsAreUnreachable(t *testing.T) {
	stuck := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server looks for the client's end only then
		<-r.Context().Done()
	})
	garbage := func(answer string) Client {
		dir, err := os.MkdirTemp("", "n-attach-") //nolint:usetesting // t.TempDir may be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1000))
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}()
		t.Cleanup(func() { _ = l.Close(); <-done; _ = os.RemoveAll(dir) })
		return Client{Socket: filepath.Join(dir, "s")}
	}
	for name, c := range map[string]Client{
		"no socket": {Socket: t.TempDir() + "/none"}, "never answers": stuck,
		"closes": garbage(""), "no HTTP": garbage("hello\r\n\r\n"), "short body": garbage("HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
		"negative length": garbage("HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\nabc"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := c.Ready(ctx); !errors.Is(err, ErrUnreachable) || !errors.Is(err, model.ErrUnavailable) {
				t.Errorf("error %v, want unreachable", err)
			}
		})
	}
}

// FuzzReadResponse feeds anything to the reader of HTTP answers.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 503 No\r\n\r\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		status, body, err := readResponse(bytes.NewReader(data))
		if err == nil && (status < 100 || len(body) > len(data)) {
			t.Errorf("status %d, body of %d bytes from %d", status, len(body), len(data))
		}
	})
}

// TestSpoolLeavesForeignFilesAlone puts, lists and removes deletions, and leaves foreign files alone.
func TestSpoolLeavesForeignFilesAlone(t *testing.T) {
	s := Spool{Dir: filepath.Join(t.TempDir(), "spool")}
	if l, err := s.List(); err != nil || len(l) != 0 {
		t.Errorf("List without a directory: %v, %v", l, err)
	}
	a, b := DetachRequest{Key: Key{"c1", "eth0"}, Netns: "/n"}, DetachRequest{Key: Key{"c1", "eth1"}}
	for _, r := range []DetachRequest{a, b, a} {
		if err := s.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove(b.Key); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(b.Key); err != nil {
		t.Errorf("Remove of what is absent: %v", err)
	}
	for name, text := range map[string]string{"x.json": "{", "y.json": `{"container":"c1","ifname":"eth0"}`, "z.txt": "z"} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.List()
	if err == nil || !strings.Contains(err.Error(), "x.json") || !strings.Contains(err.Error(), "y.json") {
		t.Errorf("error %v, want one that names x.json and y.json", err)
	}
	if diff := cmp.Diff([]DetachRequest{a}, got); diff != "" {
		t.Errorf("spool (-want +got):\n%s", diff)
	}
	if !s.Has(a.Key) || s.Has(b.Key) {
		t.Error("Has is wrong")
	}
}
