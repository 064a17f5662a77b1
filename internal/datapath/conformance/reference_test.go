package conformance

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestReferenceConforms runs the conformance suite on the reference.
func TestReferenceConforms(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		ref := reference.New()
		opened := false
		ifaces := map[string]bool{}
		return Harness{
			Open: func(testing.TB) driver.Driver {
				if opened {
					ref = ref.Restart()
				}
				opened = true
				ref.Interfaces(func(name string) bool { return ifaces[name] })
				return ref
			},
			AddInterface: func(_ testing.TB, name string, _ model.MAC) { ifaces[name] = true },
			Break:        func(_ testing.TB, n int) { ref.BreakAfter(n) },
			Egress:       true,
			Egress6:      true,
			Send:         func(_ testing.TB, p reference.Packet) reference.Verdict { return ref.Send(p) },
		}
	})
}
