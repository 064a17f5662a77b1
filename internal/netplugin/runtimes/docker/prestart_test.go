package docker

import "testing"

// TestRequestsBeforeTheStartAreAnsweredAfterIt: what an engine asks while netplugin starts, after Listen and before there is a
// plugin, is answered once there is.
func TestRequestsBeforeTheStartAreAnsweredAfterIt(t *testing.T) {
	b := newBed(t)
	b.stop()
	early, err := Listen(t.Context(), b.cfg.SocketDir, b.cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		resp, err := b.http.Post("http://x/Plugin.Activate", "", nil) //nolint:noctx // it ends with the socket
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	b.cfg.Socket = early
	b.start()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
