package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/driver/drivertest"
)

// FuzzServices compares with the reference what becomes of packets to and from services
// of worlds that the fuzzer makes.
func FuzzServices(f *testing.F) { drivertest.FuzzServices(f, newRig(f).harness()) }
