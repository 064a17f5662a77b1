package storetest_test

import (
	"net"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestFreePortsAreNotReused: no address is given twice while its test runs, and each can be listened on.
func TestFreePortsAreNotReused(t *testing.T) {
	given := map[string]bool{}
	for range 1000 { // of 15,000: some are drawn twice
		address := storetest.FreePort(t)
		if given[address] {
			t.Fatalf("%s is given twice", address)
		}
		given[address] = true
	}
	for address := range given {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		break
	}
}
