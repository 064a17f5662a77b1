package ebpf

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

const (
	helperRedirectPeer = asm.FnRedirectPeer
	helperLoop         = asm.FnLoop
	helperCoarseClock  = asm.FnKtimeGetCoarseNs
)

func helper(fn asm.BuiltinFunc) func() error {
	return func() error { return features.HaveProgramHelper(ebpf.SchedCLS, fn) }
}
