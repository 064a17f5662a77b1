package masterclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A netmaster that takes the stream and does not answer is given up with the context.
func TestHangingRelayStreamIsGivenUp(t *testing.T) {
	asked, end := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-end
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	m, err := New(Config{Host: "h1", Fixed: s.URL, Allowed: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := m.Relay(ctx, s.URL)
		done <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it is a stream")
		}
	case <-time.After(time.Minute):
		t.Fatal("it is still waited for")
	}
}
