package rig

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs"
	"github.com/contiv/netplugin/v2/internal/model"
)

// OVS names Open vSwitch, EBPF the other driver.
const (
	OVS  = "ovs"
	EBPF = "ebpf"
)

// Rig is one host with containers on one VXLAN network, each in a namespace. Close ends it.
type Rig struct {
	Containers []string     // their namespaces' names
	Picture    desired.Host // what Apply makes true

	host  string
	dir   string
	drv   driver.Driver
	clean []func()
}

// Run runs a command.
func Run(args ...string) error {
	if out, err := exec.CommandContext(context.Background(), args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Address is container i's address.
func Address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}) }

// Port is the host's side of container i's pair.
func Port(i int) string { return "cvbw" + strconv.Itoa(i) }

// Host is the host's namespace.
func (r *Rig) Host() string { return r.host }

// Within runs a function on a thread of a namespace, which ends with it.
func Within(ns string, do func() error) error {
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		h, err := netns.GetFromName(ns)
		if err == nil {
			err = netns.Set(h)
			_ = h.Close()
		}
		if err == nil {
			err = do()
		}
		errs <- err
	}()
	return <-errs
}

// New makes a host with a driver, EBPF or OVS, and its containers.
func New(ctx context.Context, name string, containers int) (r *Rig, err error) {
	r = &Rig{host: fmt.Sprintf("bw%d-h", os.Getpid()), dir: filepath.Join(os.TempDir(), fmt.Sprintf("bw%d", os.Getpid()))}
	defer func(made *Rig) {
		if err != nil {
			made.Close()
		}
	}(r)
	add := func(ns string) error {
		r.clean = append(r.clean, func() { _ = Run("ip", "netns", "del", ns) })
		return Run("ip", "netns", "add", ns)
	}
	if err := add(r.host); err != nil {
		return nil, err
	}
	r.Picture = desired.Host{Name: "h1", VTEP: netip.MustParseAddr("10.8.0.1"), ArpMode: model.ArpProxy, Revision: 1}
	r.Picture.Networks = r.Picture.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN, Tag: 100})
	if err := Run("ip", "-n", r.host, "link", "add", "u0", "type", "veth", "peer", "name", "u1"); err != nil {
		return nil, err
	}
	if err := Run("ip", "-n", r.host, "addr", "add", "10.8.0.1/24", "dev", "u0"); err != nil {
		return nil, err
	}
	for i := range containers {
		ns := fmt.Sprintf("bw%d-c%d", os.Getpid(), i)
		r.Containers = append(r.Containers, ns)
		if err := add(ns); err != nil {
			return nil, err
		}
		mac := model.MAC{2, 9, 0, 0, 0, byte(i + 1)}
		for _, args := range [][]string{
			{"-n", r.host, "link", "add", Port(i), "type", "veth", "peer", "name", "eth0", "address", mac.String(), "netns", ns},
			{"-n", r.host, "link", "set", Port(i), "up"},
			{"-n", ns, "link", "set", "eth0", "up"},
			{"-n", ns, "link", "set", "lo", "up"},
			{"-n", ns, "addr", "add", Address(i).String() + "/24", "dev", "eth0"},
			{"netns", "exec", ns, "ethtool", "-K", "eth0", "tx", map[bool]string{true: "off", false: "on"}[name == OVS]}, // as netplugin does
		} {
			if err := Run(append([]string{"ip"}, args...)...); err != nil {
				return nil, err
			}
		}
		r.Picture.Ports = r.Picture.Ports.Set(Port(i), &desired.Port{IfName: Port(i), Network: 1, MAC: mac, IPv4: Address(i), Identity: 300})
	}
	r.clean = append(r.clean, func() { _ = os.RemoveAll(r.dir) })
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, err
	}
	open := r.openEBPF
	if name == OVS {
		open = r.openOVS
	}
	if err := open(ctx); err != nil {
		return nil, err
	}
	return r, r.Apply(ctx)
}

func (r *Rig) openEBPF(ctx context.Context) error {
	r.clean = append(r.clean, func() { _ = Run("umount", r.dir) })
	if err := Run("mount", "-t", "bpf", "bpf", r.dir); err != nil {
		return err
	}
	return Within(r.host, func() (err error) { // the driver's own threads stay in the namespace
		r.drv, err = ebpf.New(ctx, ebpf.Config{PinDir: filepath.Join(r.dir, "driver"), Log: slog.New(slog.DiscardHandler)})
		return err
	})
}

// openOVS starts a switch of the datapath in user space.
func (r *Rig) openOVS(ctx context.Context) error {
	at := func(name string) string { return filepath.Join(r.dir, name) }
	db := "unix:" + at("db.sock")
	if err := Run("ovsdb-tool", "create", at("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"ovsdb-server", at("conf.db"), "--remote=p" + db, "--unixctl=" + at("db.ctl")},
		{"ovs-vsctl", "--db=" + db, "--no-wait", "init"},
		{"ovs-vswitchd", db, "--unixctl=" + at("vswitchd.ctl")},
	} {
		cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", r.host}, args...)...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+r.dir, "OVS_DBDIR="+r.dir, "OVS_LOGDIR="+r.dir, "OVS_SYSCONFDIR="+r.dir)
		if args[0] == "ovs-vsctl" {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", args[0], err, out)
			}
			continue
		}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		r.clean = append(r.clean, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := listens(ctx, map[string]string{"ovsdb-server": at("db.sock"), "ovs-vswitchd": at("vswitchd.ctl")}[args[0]]); err != nil {
			return err
		}
	}
	return Within(r.host, func() (err error) {
		r.drv, err = ovs.New(ctx, ovs.Config{OVSDB: db, RunDir: r.dir, Datapath: "netdev", Log: slog.New(slog.DiscardHandler)})
		return err
	})
}

// listens waits until somebody answers at a socket.
func listens(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", path, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Rate gives a container a rate, or takes it away (nil).
func (r *Rig) Rate(ctx context.Context, i int, rate *desired.Rate) error {
	r.Picture.Bandwidth = r.Picture.Bandwidth.Delete(Port(i))
	if rate != nil {
		r.Picture.Bandwidth = r.Picture.Bandwidth.Set(Port(i), rate)
	}
	return r.Apply(ctx)
}

// Apply makes the picture true; a problem is an error.
func (r *Rig) Apply(ctx context.Context) error {
	return Within(r.host, func() error {
		rep, err := r.drv.Apply(ctx, r.Picture)
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("problems: %v", rep.Problems)
		}
		return err
	})
}

// Close ends the driver and removes all that New made.
func (r *Rig) Close() {
	if r.drv != nil {
		_ = r.drv.Close()
	}
	for _, undo := range slices.Backward(r.clean) {
		undo()
	}
}
