package ovs

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// TestFilterIsOursByWhatItDoes: a filter is ours by what it does and not by its name alone; one of our
// name elsewhere is a stranger's, and stays.
func TestFilterIsOursByWhatItDoes(t *testing.T) {
	ovstest.Require(t, "ip", "tc")
	ns := fmt.Sprintf("Oown%d", os.Getpid())
	command := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	command("ip", "netns", "add", ns)
	t.Cleanup(func() { command("ip", "netns", "del", ns) })
	o := &ownMark{env: &env{cfg: Config{Datapath: "netdev", Log: slog.New(slog.DiscardHandler)}}, filterIndex: -1}
	want := desired.Host{HostNAT: desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))}
	want.HostNAT.Interface = "own0"
	command("ip", "-n", ns, "link", "add", "own0", "type", "veth", "peer", "name", "own1")
	show := func(want desired.Host) {
		t.Helper()
		if err := inNamespace(ns, func() error {
			for _, p := range o.ensureFilter(want) {
				return p.Err
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var ours string
	if err := inNamespace(ns, func() error {
		prog, tag, err := loadOwn()
		if err != nil {
			return err
		}
		ours = tag
		return prog.Close()
	}); err != nil {
		t.Fatal(err)
	}
	strange := func(priority uint16) {
		t.Helper()
		if err := inNamespace(ns, func() error {
			link, err := netlink.LinkByName("own0")
			if err != nil {
				return err
			}
			prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "Apache-2.0"})
			if err != nil {
				return err
			}
			defer prog.Close()
			return netlink.FilterReplace(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: ownHandle, Priority: priority, Protocol: unix.ETH_P_ALL},
				Fd:          prog.FD(), Name: ownFilter, DirectAction: true,
			})
		}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(when string, own bool, names int) {
		t.Helper()
		all := command("tc", "-n", ns, "filter", "show", "dev", "own0", "egress")
		if strings.Contains(all, ours) != own || strings.Count(all, ownFilter) != names {
			t.Errorf("%s, want ours %v (tag %s) among %d:\n%s", when, own, ours, names, all)
		}
	}
	show(want)
	has("made", true, 1)
	strange(7)
	has("with a stranger's", true, 2)
	strange(ownPriority)
	has("a stranger's in our place", false, 2)
	show(want)
	has("put back", true, 2)
}
