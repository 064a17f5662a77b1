package testcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// core is what all parts of a Lab use: its namespaces, its hosts, and the state that is on
// disk.
type core struct {
	Fabric *Namespace // the bridges between the hosts
	Master *Namespace // netmaster and etcd
	hosts  []*Host
	mu     sync.Mutex
	st     state
}

// newLab makes the parts of a Lab, which has no namespaces and hosts yet.
func newLab(st state) *Lab {
	c := &core{st: st}
	l := &Lab{core: c, Network: &Network{c}, spaces: map[string]*Namespace{}}
	l.processes = &processes{core: c, spawn: newSpawner()}
	l.certificates = &certificates{c}
	l.Store = &Store{core: c, processes: l.processes, certificates: l.certificates}
	l.Masters = &Masters{core: c, processes: l.processes, certificates: l.certificates, store: l.Store}
	l.Prometheus = &Prometheus{core: c, processes: l.processes, certificates: l.certificates}
	return l
}

// BaseDir holds one directory per lab.
const BaseDir = "/run/contivlab"

const stateFile = "lab.json"

// state is what a lab writes down of itself, so that another process can use or
// remove it: its configuration first, then what is made, as it is made.
type state struct {
	Config     Config                 `json:"config"`
	Owner      *Process               `json:"owner"`   // the process that built it
	Drivers    map[string]string      `json:"drivers"` // by host, as last started
	Processes  map[string]*Process    `json:"processes"`
	Containers map[string]*Attachment `json:"containers"`
	Ready      bool                   `json:"ready"`
}

var nameRE = regexp.MustCompile(`^[a-z][a-z0-9]{0,11}$`)

func checkName(name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("lab name %q: must be 1-12 lower-case letters and digits, the first a letter", name)
	}
	return nil
}

// prefix is what the names of all of a lab's namespaces begin with. Lab names
// hold no hyphen, so no lab's prefix begins another's.
func prefix(name string) string { return "cl-" + name + "-" }

// save writes the state; the caller holds l.mu.
func (l *core) save() error {
	b, err := json.MarshalIndent(l.st, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(l.st.Config.Dir, stateFile)
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readState(dir string) (state, error) {
	var st state
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return st, fmt.Errorf("read %s: %w", filepath.Join(dir, stateFile), err)
	}
	return st, nil
}

// List returns the names of the labs that exist on this machine: running ones
// and what crashed ones left.
func List() ([]string, error) {
	names := map[string]bool{}
	entries, err := os.ReadDir(BaseDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && checkName(e.Name()) == nil {
			names[e.Name()] = true
		}
	}
	spaces, err := namespacesWith("cl-")
	if err != nil {
		return nil, err
	}
	for _, s := range spaces {
		if name, _, ok := strings.Cut(strings.TrimPrefix(s, "cl-"), "-"); ok {
			names[name] = true
		}
	}
	var out []string
	for n := range names {
		out = append(out, n)
	}
	sort.Strings(out)
	return out, nil
}

// Remove ends and removes everything that a lab of this name has on the
// machine, by its state file and by the prefix of its namespaces, whether the
// process that built it still knows of it or not. An absent lab is fine.
func Remove(name, dir string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(BaseDir, name)
	}
	st, err := readState(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		st = state{} // a torn file: the namespaces tell the rest
	}
	var errs []error
	for _, p := range st.Processes {
		errs = append(errs, p.Kill())
	}
	spaces, err := namespacesWith(prefix(name))
	errs = append(errs, err)
	errs = append(errs, killInside(spaces))
	for _, s := range spaces {
		errs = append(errs, removeNamespace(s), removeCgroup(s))
	}
	errs = append(errs, unmountAll(dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	_ = os.Remove(BaseDir) // succeeds for the last lab only
	return nil
}

// killInside ends every process whose network namespace is one of those named.
func killInside(spaces []string) error {
	inodes := map[uint64]bool{}
	for _, s := range spaces {
		var st syscall.Stat_t
		if syscall.Stat(filepath.Join(netnsDir, s), &st) == nil {
			inodes[st.Ino] = true
		}
	}
	self, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		return err
	}
	delete(inodes, self.Sys().(*syscall.Stat_t).Ino)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &st) != nil || !inodes[st.Ino] {
			continue
		}
		start, err := startTime(pid)
		if err != nil {
			continue
		}
		p := &Process{Name: fmt.Sprintf("process %d", pid), PID: pid, Start: start}
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// self identifies this process.
func self() *Process {
	p := &Process{Name: "contivlab", PID: os.Getpid()}
	p.Start, _ = startTime(p.PID) // it runs
	return p
}

// ownerAlive reports whether the process that built a lab, another than this,
// still runs.
func (st state) ownerAlive() bool { return st.Owner.Alive() && st.Owner.PID != os.Getpid() }

// address returns the address of the n-th machine on a network.
func address(network string, n int) netip.Prefix {
	p := netip.MustParsePrefix(network)
	a := p.Addr().As4()
	a[3] = byte(n)
	return netip.PrefixFrom(netip.AddrFrom4(a), p.Bits())
}

const (
	underlay   = "10.250.0.0/24" // between hosts; inside the lab's namespaces only, as is control
	control    = "10.251.0.0/24" // what netplugin, netmaster and etcd say to each other
	masterHost = 2
	firstHost  = 11
	grace      = 3 * time.Second
)
