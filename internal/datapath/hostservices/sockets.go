package hostservices

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config says where Sockets work.
type Config struct {
	Log *slog.Logger
	// Cgroup is a directory of cgroup2: sockets of processes in it and below are served.
	// Empty = where it is mounted.
	Cgroup string
	// Pins is a directory on a BPF file system, in which programs and maps outlive this process.
	Pins string
	// Repairs hear of what others have changed and Apply puts back.
	Repairs Repairs
}

// Repairs count changes that were not made by this process.
type Repairs interface {
	Entries(table string, n int) // of a map; n may be 0
	Program(name string)         // it was not attached, or another one was
}

// noRepairs drops what is found before this process has made everything be so.
type noRepairs struct{}

func (noRepairs) Entries(string, int) {}
func (noRepairs) Program(string)      {}

// Sockets serves the sockets of processes in the network namespace in which it was
// opened. One goroutine at a time may use it.
type Sockets struct {
	cfg   Config
	spec  *ebpf.CollectionSpec // of what is loaded
	of    *ebpf.Collection
	links []link.Link
	state
	known bool // the maps hold what state says
}

// Open loads the programs; Apply attaches them, in place of an earlier process's. It
// fails with errors.ErrUnsupported where the kernel, from before 5.10, cannot run them.
func Open(cfg Config) (*Sockets, error) {
	if cfg.Cgroup == "" {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return nil, fmt.Errorf("services for sockets: %w", err)
		}
		if cfg.Cgroup, err = FindCgroup(mounts); err != nil {
			return nil, fmt.Errorf("services for sockets: %w", err)
		}
	}
	cookie, err := netnsCookie()
	if err != nil {
		return nil, err
	}
	spec, err := loadSockets()
	if err != nil {
		return nil, fmt.Errorf("services for sockets: %w", err)
	}
	setsErrors := uint32(0)
	if features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval) == nil {
		setsErrors = 1
	}
	if err := errors.Join(spec.Variables["host_netns"].Set(cookie), spec.Variables["sets_errors"].Set(setsErrors)); err != nil {
		return nil, fmt.Errorf("services for sockets: %w", err)
	}
	of, err := loadPinned(spec, cfg.Pins)
	if err != nil {
		return nil, fmt.Errorf("services for sockets: %w", err)
	}
	return &Sockets{cfg: cfg, spec: spec, of: of, state: newState()}, nil
}

// Set says what is at a place; nil = nothing.
func (s *Sockets) Set(at Place, f *Frontend) {
	if f.equal(s.want[at]) {
		return
	}
	if s.stale[at] = true; f == nil {
		delete(s.want, at)
	} else {
		s.want[at] = f
	}
}

// SetNode says whether services are asked at an address of this host by ports of nodes.
func (s *Sockets) SetNode(a netip.Addr, is bool) {
	k := toAddr(a)
	if s.nodes[k] != 0 == is {
		return
	}
	if s.sameAddrs = false; is {
		s.nodes[k] = 1
	} else {
		delete(s.nodes, k)
	}
}

// SetContainer says by which host-local NAT address sockets reach a container that is asked at
// its own address; zero = by none.
func (s *Sockets) SetContainer(own, nat netip.Addr) {
	k, to := toAddr(own), addr{}
	if nat.IsValid() {
		to = toAddr(nat)
	}
	if s.nat[k] == to {
		return
	}
	if s.sameAddrs = false; nat.IsValid() {
		s.nat[k] = to
	} else {
		delete(s.nat, k)
	}
}

// Apply makes the maps be so, and attaches the programs. With look, what is there is read
// first.
func (s *Sockets) Apply(ctx context.Context, look bool) error {
	load, repairs := look || !s.known, Repairs(noRepairs{})
	if s.known {
		repairs = s.cfg.Repairs
	}
	s.known = false
	if load {
		if err := s.load(s.of.Maps, repairs); err != nil {
			return err
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	if load {
		if err := s.sweep(); err != nil {
			return err
		}
		if err := s.attach(repairs); err != nil {
			return err
		}
	}
	s.known = true
	if err := s.endLost(ctx); err != nil {
		s.cfg.Log.Warn("sockets connected to services' former backends are not ended", "error", err)
	}
	return nil
}

// attach makes sure that the programs are where they should be.
func (s *Sockets) attach(repairs Repairs) error {
	id, err := cgroupID(s.cfg.Cgroup)
	if err != nil {
		return err
	}
	s.closeLinks()
	for name, prog := range s.of.Programs {
		info, err := prog.Info()
		if err != nil {
			return fmt.Errorf("services for sockets: %w", err)
		}
		ours, _ := info.ID()
		pin := filepath.Join(s.cfg.Pins, "link-"+name)
		l, err := link.LoadPinnedLink(pin, nil)
		at, runs := attached(l)
		if at != id || runs != ours {
			repairs.Program(name)
		}
		if at == id && l.Update(prog) == nil {
			s.links = append(s.links, l)
			continue
		}
		if err == nil {
			_ = bpfattach.RemoveLink(l) // another one takes its place
		} else if err := os.RemoveAll(pin); err != nil {
			return fmt.Errorf("services for sockets: %w", err)
		}
		if l, err = link.AttachCgroup(link.CgroupOptions{Path: s.cfg.Cgroup, Attach: s.spec.Programs[name].AttachType, Program: prog}); err != nil {
			return fmt.Errorf("services for sockets: attach %s to %s: %w", name, s.cfg.Cgroup, err)
		}
		if err := bpfattach.PinLink(l, pin); err != nil {
			return fmt.Errorf("services for sockets: %w", err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// attached returns the numbers of a link's cgroup and program; 0 = it has none any more.
func attached(l link.Link) (cgroup uint64, program ebpf.ProgramID) {
	if l == nil {
		return 0, 0
	}
	info, err := l.Info()
	if err != nil || info.Cgroup() == nil {
		return 0, 0
	}
	return info.Cgroup().CgroupId, info.Program
}

// cgroupID is the number of a cgroup, as the kernel tells of links.
func cgroupID(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, fmt.Errorf("services for sockets: cgroup %s: %w", dir, err)
	}
	return st.Ino, nil
}

func (s *Sockets) closeLinks() {
	for _, l := range s.links {
		_ = l.Close() // it stays pinned
	}
	s.links = nil
}

// Close lets the programs be; they go on.
func (s *Sockets) Close() error {
	s.closeLinks()
	s.of.Close()
	return nil
}

// netnsCookie is the number of this thread's network namespace; 0 = the initial one, where
// the kernel (before 5.14) does not tell.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was sent
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	return cookie, nil
}

// FindCgroup returns where cgroup2 is mounted, the root of it rather than a part; it may be
// beside cgroup v1. mountinfo is the contents of /proc/self/mountinfo.
func FindCgroup(mountinfo []byte) (string, error) {
	best, at := -1, ""
	for line := range bytes.Lines(mountinfo) {
		// proc(5): 36 35 98:0 /root /mount/point options - type source options
		before, after, ok := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(before)
		if !ok || !bytes.HasPrefix(after, []byte("cgroup2 ")) || len(fields) < 5 {
			continue
		}
		// A container's own namespace of cgroups shows what lies above it as "..".
		above := bytes.Count(fields[3], []byte("/.."))
		if root := bytes.ReplaceAll(fields[3], []byte("/.."), nil); len(bytes.Trim(root, "/")) > 0 {
			continue
		}
		if above > best {
			best, at = above, string(fields[4])
		}
	}
	if at == "" {
		return "", model.Errorf(model.ErrNotFound, "no cgroup2 file system is mounted: mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), or name a directory of it")
	}
	return at, nil
}
