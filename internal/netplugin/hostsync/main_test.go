package hostsync

import (
	"os"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestMain runs the tests in a network namespace of their own: they look at, and
// make, interfaces.
func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, func() error { return nil }))
}
