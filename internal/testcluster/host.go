package testcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Host is one simulated machine with its netplugin.
type Host struct {
	*Node
	environment *environment
	Switch      *Switch
}

// Node is a simulated machine: its name, addresses, directory and namespace.
type Node struct {
	Address netip.Addr // on the underlay; its VTEP
	Control netip.Addr // on the control network
	Dir     string
	NS      *Namespace
	Name    string
	lab     *Lab
}

// Switch is the Open vSwitch of a host. Its state is in its processes and its database.
type Switch struct {
	*Node
	environment *environment
}

// host describes the n-th host, counted from 1; its namespace is the caller's business.
func (l *Lab) host(n int) *Host {
	name := fmt.Sprintf("h%d", n)
	m := &Node{
		Name: name, Address: address(underlay, firstHost+n-1).Addr(), Control: address(control, firstHost+n-1).Addr(),
		Dir: filepath.Join(l.st.Config.Dir, name), lab: l,
	}
	e := &environment{m}
	return &Host{m, e, &Switch{m, e}}
}

// wire prepares the host's links; it runs in the host's namespace.
func (h *environment) wire() error {
	for _, link := range []string{"eth0", "eth1", "ctl0"} {
		if err := errors.Join(sysctl("net/ipv6/conf/"+link+"/disable_ipv6", "1"), setUp(link)); err != nil {
			return err
		}
	}
	if err := h.giveAddresses(); err != nil {
		return err
	}
	if h.Driver() == DriverOVS && h.lab.st.Config.Datapath != "system" {
		return nil // startSwitch gives it an address
	}
	return h.giveUnderlay("eth0")
}

// Driver returns the data plane that the host's netplugin was last started with.
func (h *Node) Driver() string {
	h.lab.mu.Lock()
	defer h.lab.mu.Unlock()
	return h.lab.st.Drivers[h.Name]
}

// RunDir holds the sockets and the database of the host's Open vSwitch.
func (h *Node) RunDir() string { return filepath.Join(h.Dir, "ovs") }

// DB is the address of the host's OVSDB.
func (h *Node) DB() string { return "unix:" + filepath.Join(h.RunDir(), "db.sock") }

// CNISocket is where the host's netplugin answers the CNI binary.
func (h *Host) CNISocket() string { return filepath.Join(h.Dir, "cni.sock") }

// StateDir is where the host's netplugin keeps its journal, and the CNI binary
// its spool.
func (h *Host) StateDir() string { return filepath.Join(h.Dir, "state") }

// ovsEnv keeps OVS programs inside the host's own directories.
func (h *Node) ovsEnv() []string {
	return []string{"OVS_RUNDIR=" + h.RunDir(), "OVS_LOGDIR=" + h.RunDir(), "OVS_DBDIR=" + h.RunDir()}
}

// Run runs a command inside the host, with OVS programs pointed at its switch.
func (h *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	c := h.NS.Command(ctx, name, args...)
	c.Env = append(os.Environ(), h.ovsEnv()...)
	c.Dir = h.Dir
	out, err := c.CombinedOutput()
	return string(out), err
}

// Vsctl runs ovs-vsctl on the host's database.
func (h *Switch) Vsctl(ctx context.Context, args ...string) (string, error) {
	return h.Run(ctx, "ovs-vsctl", append([]string{"--db=" + h.DB(), "--timeout=30"}, args...)...)
}

// startSwitch makes the host's OVS database and starts its daemons. On the
// userspace datapath the host's address moves to a bridge that holds eth0, for
// there tunnels leave through OVS bridges only. The cables' other ends compute
// checksums, so that frames come as over a wire: of the MTU, and complete.
func (h *Switch) startSwitch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(h.RunDir(), 0o755); err != nil {
		return err
	}
	db := filepath.Join(h.RunDir(), "conf.db")
	if _, err := h.Run(ctx, "ovsdb-tool", "create", db, "/usr/share/openvswitch/vswitch.ovsschema"); err != nil {
		return err
	}
	if err := h.StartOvsdb(ctx); err != nil {
		return err
	}
	if _, err := h.Vsctl(ctx, "--no-wait", "init"); err != nil {
		return err
	}
	if err := h.StartVswitchd(ctx); err != nil {
		return err
	}
	if h.lab.st.Config.Datapath == "system" {
		return nil
	}
	err := h.lab.Fabric.Do(func() error { return errors.Join(txChecksumOff(h.Name), txChecksumOff(h.Name+"v")) })
	if err != nil {
		return err
	}
	if _, err := h.Vsctl(ctx, "add-br", "underlay", "--", "set", "bridge", "underlay", "datapath_type=netdev",
		"fail_mode=standalone", "--", "add-port", "underlay", "eth0"); err != nil {
		return h.process("ovs-vswitchd").failed(err)
	}
	return h.NS.Do(func() error {
		if err := delAddress("eth0", netip.PrefixFrom(h.Address, h.lab.st.Config.Environment.bits())); err != nil {
			return err
		}
		// The kernel answers ARP on any link that is up; eth0 is the switch's now.
		return errors.Join(sysctl("net/ipv4/conf/eth0/arp_ignore", "1"), sysctl("net/ipv6/conf/underlay/disable_ipv6", "1"), h.environment.giveUnderlay("underlay"))
	})
}

func (h *Node) process(name string) *Process { return h.lab.Process(h.Name + "-" + name) }

// Agent returns the host's netplugin process.
func (h *Host) Agent() *Process { return h.process("netplugin") }

// Vswitchd returns the host's ovs-vswitchd process.
func (h *Switch) Vswitchd() *Process { return h.process("ovs-vswitchd") }

// StartOvsdb starts the host's ovsdb-server and waits until it answers.
func (h *Switch) StartOvsdb(ctx context.Context) error {
	sock := strings.TrimPrefix(h.DB(), "unix:")
	if err := os.Remove(sock); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := h.lab.processes.start(h.NS, h.Name+"-ovsdb-server", h.Dir, h.ovsEnv(), "/usr/sbin/ovsdb-server",
		filepath.Join(h.RunDir(), "conf.db"), "--remote=punix:"+sock, "--no-chdir", "-vconsole:info", "-vsyslog:off",
		"--unixctl="+filepath.Join(h.RunDir(), "ovsdb-server.ctl"))
	if err != nil {
		return err
	}
	return p.ready(ctx, "OVSDB of "+h.Name, func(ctx context.Context) error { return accepts(ctx, sock) })
}

// keepMemory makes glibc keep what ovs-vswitchd frees: giving memory back and
// taking it again is half of its work when ports come and go
// (packaging/systemd has the same for operators).
var keepMemory = []string{"MALLOC_TOP_PAD_=16777216", "MALLOC_TRIM_THRESHOLD_=268435456"}

// StartVswitchd starts the host's ovs-vswitchd and waits until it takes commands.
// It runs ahead of other processes: where it forwards packets itself it stands
// for a part of the kernel, and loses them when it has to wait for a processor.
func (h *Switch) StartVswitchd(ctx context.Context) error {
	ctl := filepath.Join(h.RunDir(), "ovs-vswitchd.ctl")
	if err := os.Remove(ctl); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := h.lab.processes.start(h.NS, h.Name+"-ovs-vswitchd", h.Dir, append(h.ovsEnv(), keepMemory...), "nice", "-n", "-15", "/usr/sbin/ovs-vswitchd", h.DB(),
		"--no-chdir", "-vconsole:info", "-vsyslog:off", "-vPATTERN:console:%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m", "--unixctl="+ctl)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "ovs-vswitchd of "+h.Name, func(ctx context.Context) error { return accepts(ctx, ctl) })
}

// accepts reports whether somebody listens on a unix socket.
func accepts(ctx context.Context, path string) error {
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

// LaunchAgent starts the host's netplugin and does not wait for it.
func (h *Host) LaunchAgent(env ...string) (*Process, error) { return h.LaunchAgentWith(nil, env...) }

// LaunchAgentWith is LaunchAgent with more flags; they stand behind the lab's own
// and win over them.
func (h *Host) LaunchAgentWith(flags []string, env ...string) (*Process, error) {
	cfg := h.lab.st.Config
	// Variables, as earlier versions refuse flags that are new.
	env = slices.Concat(h.ovsEnv(), []string{"CONTIV_NETPLUGIN_CONFIG=none", "CONTIV_NETPLUGIN_CGROUP=" + cmp.Or(h.Cgroup(), "none")}, cfg.AgentEnv, env)
	return h.lab.processes.start(h.NS, h.Name+"-netplugin", h.Dir, env, slices.Concat([]string{filepath.Join(cfg.BinDir, "netplugin")}, h.AgentFlags(), flags)...)
}

// AgentFlags are the flags with which the lab starts the host's netplugin.
func (h *Host) AgentFlags() []string {
	cfg := h.lab.st.Config
	return slices.Concat([]string{
		"--host", h.Name,
		"--ctrl-ip", h.Control.String(), "--vtep-ip", h.Address.String(), "--vlan-uplinks", "eth1", "--ip-forward",
		h.lab.Store.storeFlag(), h.lab.Store.StoreURLs(), "--driver", h.Driver(), "--ebpf-pin-dir", h.PinDir(),
		"--ovs-db", h.DB(), "--ovs-run-dir", h.RunDir(), "--ovs-datapath", cfg.Datapath, "--state-dir", h.StateDir(), "--cni-socket", h.CNISocket(),
	}, h.lab.certificates.tlsFlags(h.Name), h.lab.Store.storeToken("host"), cfg.AgentArgs)
}

// StartAgent starts the host's netplugin, with extra environment (fault points),
// and waits until CNI's STATUS says that it can add containers. A host that a secure cluster
// does not know yet joins.
func (h *Host) StartAgent(ctx context.Context, env ...string) error {
	flags, err := h.JoinFlags(ctx)
	if err != nil {
		return err
	}
	p, err := h.LaunchAgentWith(flags, env...)
	if err != nil {
		return err
	}
	return h.WaitAgent(ctx, p)
}

// WaitAgent waits until CNI's STATUS says that the host can add containers.
func (h *Host) WaitAgent(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.ready(ctx, "netplugin on "+h.Name, h.Status)
}

// KillAgent ends netplugin at once, as a crash does.
func (h *Host) KillAgent() error { return h.Agent().Kill() }

// RestartAgent kills netplugin and starts it again.
func (h *Host) RestartAgent(ctx context.Context, env ...string) error {
	if err := h.KillAgent(); err != nil {
		return err
	}
	return h.StartAgent(ctx, env...)
}

// RelaunchAgent kills netplugin and starts it again, without waiting until
// it can add containers.
func (h *Host) RelaunchAgent() error {
	if err := h.KillAgent(); err != nil {
		return err
	}
	_, err := h.LaunchAgent()
	return err
}

// ChangeDriver stops netplugin and starts it with another driver. A host that is
// to have Open vSwitch gets one, if it has none; a host that no longer needs
// its switch keeps it running.
func (h *Host) ChangeDriver(ctx context.Context, driver string) error {
	if driver == DriverOVS && h.Switch.Vswitchd() == nil {
		if err := h.Switch.startSwitch(ctx); err != nil {
			return err
		}
	}
	if err := h.Agent().Stop(grace); err != nil {
		return err
	}
	h.lab.mu.Lock()
	h.lab.st.Drivers[h.Name] = driver
	h.lab.mu.Unlock()
	return h.StartAgent(ctx)
}

// RestartVswitchd kills ovs-vswitchd and starts it again; netplugin is not told.
func (h *Switch) RestartVswitchd(ctx context.Context) error {
	if err := h.Vswitchd().Kill(); err != nil {
		return err
	}
	return h.StartVswitchd(ctx)
}

// Pause stops a daemon without ending it (SIGSTOP), and returns once it has stopped: one
// of its threads has to take the signal, and the others go on until that has run.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return until(ctx, p.Name+" to stop", func(context.Context) error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID))
		for _, t := range tasks {
			text, err := os.ReadFile(t)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has ended
			}
			if err != nil {
				return err
			}
			if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s says %.1q", t, state)
			}
		}
		return err
	})
}

// Resume lets a paused daemon go on (SIGCONT).
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Ports returns the names of the interfaces that the host's data plane serves, sorted.
func (h *Host) Ports(ctx context.Context) ([]string, error) {
	if h.Driver() == DriverOVS {
		out, err := h.Switch.Vsctl(ctx, "list-ports", "contivBr")
		return strings.Fields(out), err
	}
	entries, err := os.ReadDir(filepath.Join(h.PinDir(), "links"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ":")
		names = append(names, name)
	}
	return slices.Compact(names), nil // in the order of their names
}

// Flows returns the OpenFlow flows of a bridge, for people and failure reports.
func (h *Switch) Flows(ctx context.Context, bridge string) (string, error) {
	return h.Run(ctx, "ovs-ofctl", "-O", "OpenFlow15", "--names", "dump-flows", filepath.Join(h.RunDir(), bridge+".mgmt"))
}

func (h *Node) String() string { return fmt.Sprintf("%s (%s)", h.Name, h.Address) }
