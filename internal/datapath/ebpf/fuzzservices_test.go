package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

// FuzzServices compares with the reference what becomes of packets to and from services
// of worlds that the fuzzer makes.
func FuzzServices(f *testing.F) { conformance.FuzzServices(f, newRig(f).harness()) }
