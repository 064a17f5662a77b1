package ebpf

import "github.com/cilium/ebpf"

// testRun runs a program on a frame with BPF_PROG_TEST_RUN.
func testRun(p *ebpf.Program, frame, ctx []byte) (uint32, error) {
	return p.Run(&ebpf.RunOptions{Data: frame, Context: ctx})
}
