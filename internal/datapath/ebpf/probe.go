package ebpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// requirement is a kernel feature without which the driver does not work.
type requirement struct {
	what, since string
	module      string // of Debian's kernels that has it; empty = in the kernel itself
	probe       func() error
}

func mapType(t ebpf.MapType) func() error { return func() error { return features.HaveMapType(t) } }

func helper(fn asm.BuiltinFunc) func() error {
	return func() error { return features.HaveProgramHelper(ebpf.SchedCLS, fn) }
}

var requirements = []requirement{
	{"TC programs", "4.1", "", func() error { return features.HaveProgramType(ebpf.SchedCLS) }},
	{"longest-prefix-match maps", "4.11", "", mapType(ebpf.LPMTrie)},
	{"LRU hash maps", "4.10", "", mapType(ebpf.LRUHash)},
	{"ring buffers", "5.8", "", mapType(ebpf.RingBuf)},
	{"delivery into a namespace (bpf_redirect_peer)", "5.10", "", helper(asm.FnRedirectPeer)},
	{"loops (bpf_loop)", "5.17", "", helper(asm.FnLoop)},
	{"the coarse clock (bpf_ktime_get_coarse_ns)", "5.11", "", helper(asm.FnKtimeGetCoarseNs)},
	{"a way to ask for a path's MTU (bpf_check_mtu)", "5.12", "", helper(asm.FnCheckMtu)},
	{"veth devices", "2.6.24", "veth", haveVeth},
	{"VXLAN devices that carry many networks", "4.3", "vxlan", haveVXLAN},
	{"a place to attach programs (clsact; Linux 6.6 and later have TCX besides)", "4.5", "sch_ingress and cls_bpf", haveAttachment},
}

// Probe reports whether this kernel can run the driver. The error, of kind
// model.ErrInvalid and wrapping ebpf.ErrNotSupported, names what is missing and
// the first kernel that has it. Devices are tried in a network namespace of
// the probe's own, which loads the kernel's modules as the driver would.
func Probe() error {
	return inNamespace(func() error { return probe(requirements) })
}

// inNamespace runs fn on a thread in a network namespace of its own. The thread goes
// back from there: the process's first one does not end with its goroutine, and
// /proc/PID/ns/net and /proc/PID/net, by which others see the process, are that one's.
func inNamespace(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		back, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("ebpf driver: probe: open the network namespace: %w", err)
			return
		}
		defer func() { _ = back.Close() }() // a handle only
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("ebpf driver: probe: make a network namespace (is this root?): %w", err)
			return
		}
		err = fn()
		if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread() // else the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}

func probe(all []requirement) error {
	for _, r := range all {
		err := r.probe()
		if errors.Is(err, ebpf.ErrNotSupported) {
			where := ""
			if r.module != "" {
				where = " (module " + r.module + ")"
			}
			return model.Errorf(model.ErrInvalid, "ebpf driver: this kernel lacks %s%s, which Linux %s and later have: %w", r.what, where, r.since, err)
		}
		if err != nil {
			return fmt.Errorf("ebpf driver: probe %s: %w", r.what, err)
		}
	}
	return nil
}

// missing makes a kernel's answer to what it does not know an ErrNotSupported.
func missing(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w (%w)", ebpf.ErrNotSupported, err)
	}
	return err
}

func haveVeth() error {
	return missing(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}, PeerName: "probe1"}))
}

func haveVXLAN() error {
	return missing(netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "probe2"}, FlowBased: true, Port: DefaultVXLANPort}))
}

// haveAttachment attaches a program that lets everything pass to the loopback
// of the probe's namespace.
func haveAttachment() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcNext), asm.Return()},
	})
	if err != nil {
		return err
	}
	if !bpfattach.HaveTCX(prog) {
		_, err = (&attacher{way: attachClsact}).attach("lo", 1, true, prog)
	}
	return errors.Join(missing(err), prog.Close())
}

// tcNext is TC_NEXT of bpf/datapath.c: the next program decides.
const tcNext = -1
