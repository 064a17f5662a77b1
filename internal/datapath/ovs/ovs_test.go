package ovs

import (
	"context"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

func TestMain(m *testing.M) {
	// The net package finds out at its first listener which families there are. In a namespace of
	// a test, which has no loopback address of IPv6, it would find none.
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ":0")
	if err != nil {
		panic(err)
	}
	_ = l.Close()
	goleak.VerifyTestMain(m)
}

// TestConformance runs the conformance suite on a real switch with real frames, its tests
// side by side: most of their time they wait for the switch, and for interfaces to go.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		t.Helper()
		if !strings.HasSuffix(t.Name(), "AuditRules") { // beside others their monitors have told of a connection twice
			t.Parallel()
		}
		return newRig(t).harness()
	})
}
