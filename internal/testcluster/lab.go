package testcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config says what a lab consists of.
type Config struct {
	Name     string `json:"name"`   // 1-12 lower-case letters and digits
	Dir      string `json:"dir"`    // state, logs, sockets; default BaseDir/Name
	BinDir   string `json:"binDir"` // netmaster, netplugin, netctl and contivk8s
	Hosts    int    `json:"hosts"`
	Replicas int    `json:"replicas,omitempty"` // netmasters, and as many members of their etcd, each on an address of its own; with Embedded the others join the first; default 1
	Embedded bool   `json:"embedded,omitempty"` // netmaster's own etcd instead of an etcd process
	Consul   string `json:"consul,omitempty"`   // path of a Consul, which is the store instead of an etcd
	// Consuls is how many servers that Consul has, each on an address of its own; default 1.
	Consuls int `json:"consuls,omitempty"`
	// ConsulACL: Consul asks for tokens, of which netmaster's and hosts' may what consul.md says.
	ConsulACL bool `json:"consulACL,omitempty"`
	// Secure: netmasters run with --secure, and hosts join with tokens; with Embedded, or an etcd with TLSStore.
	Secure bool `json:"secure,omitempty"`
	// TLS is who has certificates of an authority of the operator's own: TLSStore or TLSOwn.
	TLS    string `json:"tls,omitempty"`
	Bare   bool   `json:"bare,omitempty"`   // hosts with links, and switches where they are asked for: no etcd, netmaster, netplugin
	Driver string `json:"driver"`           // data plane of the hosts: DriverEBPF (default), DriverOVS or DriverMixed
	Detach bool   `json:"detach,omitempty"` // processes outlive the one that builds the lab
	MTU    int    `json:"mtu,omitempty"`    // of the networks between the hosts; default the environment's
	// Environment is what the hosts' machines are like.
	Environment Environment `json:"environment,omitempty"`
	Datapath    string      `json:"datapath"` // of Open vSwitch: system or netdev; default: what the kernel has
	MasterArgs  []string    `json:"masterArgs,omitempty"`
	AgentArgs   []string    `json:"agentArgs,omitempty"`
	AgentEnv    []string    `json:"agentEnv,omitempty"`
	// HostInit is the command of each host's first process, which also gets namespaces of
	// its own for mounts, processes, names and IPC; all of the host's daemons start in
	// these. Its environment has HOST, DIR (the host's), LAB and READY, a file that it
	// makes when the others may start, and it has to stay. Without it hosts share the
	// machine's.
	HostInit []string `json:"hostInit,omitempty"`
	// Progress, if set, gets each finished step and how long it took.
	Progress func(step string, took time.Duration) `json:"-"`
}

// Lab is a running cluster of simulated hosts. Its methods may be called in
// parallel.
type Lab struct {
	*core
	Network    *Network
	Store      *Store
	Masters    *Masters
	Prometheus *Prometheus

	processes    *processes
	certificates *certificates
	spaces       map[string]*Namespace // of containers
	closers      []func()
	servers      []func()
}

// What Config.Driver may be.
const (
	DriverEBPF  = "ebpf"
	DriverOVS   = "ovs"
	DriverMixed = "mixed" // odd hosts (h1, h3, ...) on ebpf, even ones on ovs
)

// driver returns the data plane that the n-th host, counted from 1, begins with.
func (c *Config) driver(n int) string {
	switch {
	case c.Driver != DriverMixed:
		return c.Driver
	case n%2 == 0:
		return DriverOVS
	}
	return DriverEBPF
}

// fill sets defaults and checks a configuration.
func (c *Config) fill() error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if c.Hosts < 0 || c.Hosts > 200 {
		return fmt.Errorf("hosts %d: must be between 0 and 200", c.Hosts)
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Replicas < 1 || c.Replicas > firstHost-masterHost {
		return fmt.Errorf("replicas %d: must be between 1 and %d", c.Replicas, firstHost-masterHost)
	}
	if c.Consul != "" && (c.Consuls < 0 || c.Consuls > firstHost-masterHost) {
		return fmt.Errorf("servers of Consul: %d must be between 0 and %d", c.Consuls, firstHost-masterHost)
	}
	if c.Secure && (c.TLS == TLSOwn || c.Consul != "" || !c.Embedded && (c.TLS == "" || c.Replicas > 1)) {
		return errors.New("secure: netmasters make the authority, and keep the store themselves, or one of them has an etcd with TLS")
	}
	if c.TLS != "" && c.TLS != TLSStore && c.TLS != TLSOwn || c.TLS == TLSStore && (c.Embedded || c.Consul != "") {
		return fmt.Errorf("TLS %q: must be %s, or %s with an etcd process", c.TLS, TLSOwn, TLSStore)
	}
	if c.Replicas > 1 && c.Consul != "" {
		return fmt.Errorf("replicas %d: more than one need an etcd, not a Consul", c.Replicas)
	}
	if c.Dir == "" {
		c.Dir = filepath.Join(BaseDir, c.Name)
	}
	if err := c.Environment.check(); err != nil {
		return err
	}
	if c.MTU == 0 {
		c.MTU = c.Environment.mtu()
	}
	switch c.Driver {
	case "":
		c.Driver = DriverEBPF
	case DriverEBPF, DriverOVS, DriverMixed:
	default:
		return fmt.Errorf("driver %q: must be %s, %s or %s", c.Driver, DriverEBPF, DriverOVS, DriverMixed)
	}
	if c.Datapath == "" {
		c.Datapath = "netdev"
		if _, err := os.Stat("/sys/module/openvswitch"); err == nil {
			c.Datapath = "system"
		}
	}
	return nil
}

// Missing lists what the machine lacks for a lab of that configuration, one
// sentence each with the Debian package that has it.
func (c Config) Missing() []string {
	need := map[string]string{"/usr/sbin/ip": "iproute2"}
	maps.Copy(need, c.Environment.programs())
	ovs, ebpf := c.Driver == DriverOVS || c.Driver == DriverMixed, c.Driver != DriverOVS
	if ovs {
		for _, path := range []string{"/usr/sbin/ovs-vswitchd", "/usr/sbin/ovsdb-server", "/usr/bin/ovs-vsctl"} {
			need[path] = "openvswitch-switch"
		}
	}
	if !c.Embedded && c.Consul == "" {
		need["/usr/bin/etcd"] = "etcd-server"
	}
	var out []string
	for path, pkg := range need {
		if _, err := os.Stat(path); err != nil {
			out = append(out, path+" is missing: apt-get install "+pkg)
		}
	}
	if os.Geteuid() != 0 {
		out = append(out, "a lab needs root: network namespaces cannot be made by another user")
	} else if ebpf && !c.Bare {
		if err := probe(); err != nil {
			out = append(out, err.Error())
		}
	}
	if _, err := os.Stat("/dev/net/tun"); ovs && err != nil {
		out = append(out, "/dev/net/tun is missing: Open vSwitch's userspace datapath needs the kernel's tun driver")
	}
	return out
}

// Up builds a lab and returns once every part of it answers. What a crashed
// run under the same name left is removed first. On failure nothing remains
// but the logs, whose last lines are in the error.
func Up(ctx context.Context, cfg Config) (*Lab, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if m := cfg.Missing(); len(m) > 0 {
		return nil, fmt.Errorf("build lab %s: %s", cfg.Name, m[0])
	}
	if st, err := readState(cfg.Dir); err == nil && (st.ownerAlive() || st.Ready && st.Config.Detach) {
		return nil, fmt.Errorf("build lab %s: it is running already; end it with contivlab --lab %[1]s down", cfg.Name)
	}
	if err := Remove(cfg.Name, cfg.Dir); err != nil {
		return nil, err
	}
	var err error
	for range 10 { // the last lab until then may remove BaseDir meanwhile
		if err = os.MkdirAll(cfg.Dir, 0o755); !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	l := newLab(state{
		Config: cfg, Owner: self(), Drivers: map[string]string{}, Processes: map[string]*Process{},
		Containers: map[string]*Attachment{},
	})
	if err := l.save(); err != nil {
		return nil, err
	}
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build lab %s: %w", cfg.Name, err), l.Down())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Ready = true
	return l, l.save()
}

// step runs one part of the building and reports it.
func (l *Lab) step(what string, f func() error) error {
	start := time.Now()
	err := f()
	if err == nil && l.st.Config.Progress != nil {
		l.st.Config.Progress(what, time.Since(start))
	}
	return err
}

func (l *Lab) build(ctx context.Context) error {
	if err := l.step("network of namespaces", l.wire); err != nil {
		return err
	}
	if l.st.Config.TLS != "" {
		if err := l.step("certificates", func() error { return l.certificates.makePKI(ctx) }); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	serves := make(chan struct{}) // closed when netmaster does
	g.Go(func() error {
		if l.st.Config.Bare {
			return nil
		}
		switch {
		case l.st.Config.Consul != "":
			if err := l.step("Consul", func() error { return l.Store.StartConsul(ctx) }); err != nil {
				return err
			}
		case !l.st.Config.Embedded:
			if err := l.step("etcd", func() error { return l.Store.StartEtcd(ctx) }); err != nil {
				return err
			}
		}
		err := l.step("netmaster", func() error { return l.Masters.StartMaster(ctx) })
		if err == nil {
			close(serves)
		}
		return err
	})
	for _, h := range l.hosts {
		g.Go(func() error {
			if len(l.st.Config.HostInit) > 0 {
				if err := l.step("a machine for "+h.Name, func() error { return h.isolate(ctx) }); err != nil {
					return err
				}
			}
			if err := h.environment.settle(ctx); err != nil {
				return fmt.Errorf("environment of %s: %w", h.Name, err)
			}
			if h.Driver() == DriverOVS {
				if err := l.step("Open vSwitch on "+h.Name, func() error { return h.Switch.startSwitch(ctx) }); err != nil {
					return err
				}
			}
			if l.st.Config.Bare {
				return nil
			}
			if l.st.Config.Secure || l.st.Config.ConsulACL { // it gets its token then
				select {
				case <-serves:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return l.step(fmt.Sprintf("netplugin (%s) on %s", h.Driver(), h.Name), func() error { return h.StartAgent(ctx) })
		})
	}
	return g.Wait()
}

// wire makes the namespaces, the underlay, the VLAN trunk and the control
// network. The control network is apart so that what netplugin, netmaster and etcd
// say to each other does not pass, and wait for, a host's Open vSwitch.
func (l *Lab) wire() (err error) {
	cfg := l.st.Config
	p := prefix(cfg.Name)
	if l.Fabric, err = newNamespace(p + "fabric"); err != nil {
		return err
	}
	if l.Master, err = newNamespace(p + "master"); err != nil {
		return err
	}
	if err := mountBPF(cfg.Dir); err != nil {
		return err
	}
	for i := 1; i <= cfg.Hosts; i++ {
		h := l.host(i)
		if err := os.MkdirAll(h.Dir, 0o755); err != nil {
			return err
		}
		if h.NS, err = newNamespace(p + h.Name); err != nil {
			return err
		}
		if err := h.NS.makeCgroup(); err != nil {
			return err
		}
		l.hosts = append(l.hosts, h)
		l.st.Drivers[h.Name] = cfg.driver(i)
	}
	err = l.Fabric.Do(func() error {
		for path, v := range map[string]string{
			"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1",
			"net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-ip6tables": "0",
		} {
			if err := sysctl(path, v); err != nil {
				return err
			}
		}
		if err := errors.Join(addBridge("underlay", cfg.MTU), addBridge("trunk", cfg.MTU), addBridge("control", cfg.MTU), addBridge(hostsBridge, cfg.MTU)); err != nil {
			return err
		}
		err := errors.Join(plug("underlay", "master", cfg.MTU, l.Master, "eth0"), plug("control", "masterc", cfg.MTU, l.Master, "ctl0"))
		if err != nil {
			return err
		}
		for _, h := range l.hosts {
			err := errors.Join(plug("underlay", h.Name, cfg.MTU, h.NS, "eth0"), plug("trunk", h.Name+"v", cfg.MTU, h.NS, "eth1"),
				plug(cfg.controlBridge(), h.Name+"c", cfg.MTU, h.NS, "ctl0"))
			if err = errors.Join(err, l.Network.learnAt(h.Name+"v")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.Network.addRouter(); err != nil {
		return err
	}
	err = l.Master.Do(func() error {
		return errors.Join(cfg.Environment.addMasterAddresses(), addAddress("eth0", address(underlay, masterHost)), txChecksumOff("eth0"), l.Masters.addReplicas())
	})
	for _, h := range l.hosts {
		err = errors.Join(err, h.NS.Do(h.environment.wire))
	}
	return err
}

// Open returns a lab that another process built and left running.
func Open(name string) (*Lab, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	st, err := readState(filepath.Join(BaseDir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open lab %s: there is none; contivlab up makes one", name)
	}
	if err != nil {
		return nil, err
	}
	if !st.Ready {
		return nil, fmt.Errorf("open lab %s: it is being built, or its building was killed; contivlab down removes it", name)
	}
	l := newLab(st)
	l.processes.opened = true
	p := prefix(name)
	var errs [2]error
	l.Fabric, errs[0] = openNamespace(p + "fabric")
	l.Master, errs[1] = openNamespace(p + "master")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for i := 1; i <= st.Config.Hosts; i++ {
		h := l.host(i)
		if h.NS, err = openNamespace(p + h.Name); err != nil {
			return nil, err
		}
		if err := h.NS.openCgroup(); err != nil {
			return nil, err
		}
		if first := h.process("init"); first != nil && first.Alive() {
			if err := h.join(first); err != nil {
				return nil, err
			}
		}
		l.hosts = append(l.hosts, h)
	}
	for c := range st.Containers {
		if l.spaces[c], err = openNamespace(l.containerSpace(c)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Close gives up the handle to a lab and leaves the lab running, if its
// processes were started detached.
func (l *Lab) Close() {
	l.StopServing()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.closers {
		c()
	}
	l.closers = nil
	for _, n := range l.spaces {
		n.close()
	}
	for _, h := range l.hosts {
		h.NS.close()
	}
	l.Fabric.close()
	l.Master.close()
	l.processes.spawn.close()
}

// Down ends every process of the lab and removes everything it made.
func (l *Lab) Down() error {
	l.processes.stopAll()
	l.Close()
	return Remove(l.st.Config.Name, l.st.Config.Dir)
}

// stopAll asks all processes to end, users of others first; Remove kills the rest.
func (l *processes) stopAll() {
	stages := []func(name string) bool{
		func(n string) bool { return strings.HasSuffix(n, "-netplugin") || n == "serve" },
		func(n string) bool { return strings.HasPrefix(n, "netmaster") },
		func(n string) bool { return !strings.HasSuffix(n, "-init") },
		func(string) bool { return true },
	}
	procs := l.Processes()
	for _, in := range stages {
		var g errgroup.Group
		for name, p := range procs {
			if in(name) {
				delete(procs, name)
				g.Go(func() error { return p.Stop(grace) })
			}
		}
		_ = g.Wait() // Remove looks again and reports
	}
}

// Config returns the configuration with defaults filled in.
func (l *core) Config() Config { return l.st.Config }

// Hosts returns the simulated hosts in order: h1, h2, ...
func (l *core) Hosts() []*Host { return l.hosts }

// Host returns the host of that name.
func (l *core) Host(name string) (*Host, error) {
	for _, h := range l.hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("host %q: the lab has h1 to h%d", name, len(l.hosts))
}

// Process returns a daemon by name: etcd, netmaster, etcd2, netmaster2 and so on with
// Config.Replicas, h1-netplugin, h1-ovs-vswitchd, h1-ovsdb-server, ...; nil when it was never started.
func (l *core) Process(name string) *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.st.Processes[name]
}

// Processes returns all daemons by name.
func (l *core) Processes() map[string]*Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]*Process, len(l.st.Processes))
	maps.Copy(out, l.st.Processes)
	return out
}

// start starts a daemon and writes it down.
func (l *processes) start(ns *Namespace, name, dir string, env []string, argv ...string) (*Process, error) {
	return l.launch(ns, name, dir, env, 0, argv)
}

// launch is start with flags of clone(2).
func (l *processes) launch(ns *Namespace, name, dir string, env []string, flags uintptr, argv []string) (*Process, error) {
	p, err := l.spawn.start(ns, name, dir, env, flags, argv, l.opened || l.st.Config.Detach)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Processes[name] = p
	return p, l.save()
}
