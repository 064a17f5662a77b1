package drivertest

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFake runs the conformance suite on Fake.
func TestFake(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		fake := driver.NewFake()
		opened := false
		ifaces := map[string]bool{}
		return Harness{
			Open: func(testing.TB) driver.Driver {
				if opened {
					fake = fake.Restart()
				}
				opened = true
				fake.Interfaces(func(name string) bool { return ifaces[name] })
				return fake
			},
			AddInterface: func(_ testing.TB, name string, _ model.MAC) { ifaces[name] = true },
			Break:        func(_ testing.TB, n int) { fake.BreakAfter(n) },
			WayOut:       true,
			Send:         func(_ testing.TB, p driver.Packet) driver.Verdict { return fake.Send(p) },
		}
	})
}
