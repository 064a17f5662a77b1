package daemon

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNameThatDoesNotResolveDelaysTheStartBriefly: a start waits some seconds for a silent name
// server, and tells why the host's name gave no address.
func TestNameThatDoesNotResolveDelaysTheStartBriefly(t *testing.T) {
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	// What the resolver keeps for the process may not be made inside of the bubble.
	if _, err := (&net.Resolver{PreferGo: true}).LookupHost(t.Context(), "localhost"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		began := time.Now()
		var why error
		_, err := addressOf(t.Context(), "no-such-host.invalid", func(err error) { why = err })
		if (err == nil) == (why == nil) { // without a default route there is no address either
			t.Errorf("error %v, told %v", err, why)
		}
		if err != nil {
			why = err
		}
		if took := time.Since(began); took > resolveTime || !strings.Contains(why.Error(), "no-such-host") {
			t.Errorf("after %v it is told: %v", took, why)
		}
	})
}
