package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// The outside world of the host under test: its interfaces' far ends are in another
// namespace, unconfigured; one is the wire of the tunnel, one the uplink, all others are
// containers.
var (
	vtep1 = netip.MustParseAddr("192.168.7.1")
	vtep2 = netip.MustParseAddr("192.168.7.2")
	mac2  = model.MAC{0x02, 0x07, 0, 0, 0, 2}
)

const (
	underlayWire = "under0"
	uplinkWire   = "uplink0"
	sentinel     = "sent0"
)

var count atomic.Int32

type wire struct{ fd int }

type rig struct {
	t         testing.TB
	host, far string // namespaces
	pins      string
	thread    *thread
	wires     map[string]*wire
	networks  map[model.NetworkID]uint32
	underMAC  model.MAC
	drv       *Driver
	attach    string
	lasting   bool              // ports have stood for long after each Apply
	sizes     map[string]uint32 // of maps
	uplinks   []string
	log       io.Writer // nil = nowhere, or the test's when verbose
	near      *wire     // near end of the sentinel's wire
	side      *wire     // the host's own side of egress, as its stack sees it
	sideIndex int
}

// require skips the test, or fails it in CI, where it cannot run.
func require(t testing.TB, programs ...string) {
	t.Helper()
	testenv.SkipShort(t)
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	} else if err := Probe(); err != nil {
		missing = append(missing, err.Error())
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CI") == "true" || os.Getenv("CONTIV_TEST_REQUIRE") == "1" {
		t.Fatalf("this test needs %s", strings.Join(missing, ", "))
	}
	t.Skipf("this test needs %s", strings.Join(missing, ", "))
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func namespace(t testing.TB, prefix string) string {
	t.Helper()
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), count.Add(1))
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { run(t, "ip", "netns", "del", name) })
	for _, which := range []string{"all", "default"} { // no packets of the kernel's own
		run(t, "ip", "netns", "exec", name, "sysctl", "-q", "-w", "net.ipv6.conf."+which+".disable_ipv6=1")
	}
	return name
}

func newRig(t testing.TB) *rig {
	t.Helper()
	require(t, "ip", "sysctl", "tc")
	r := &rig{t: t, uplinks: []string{uplinkWire}, wires: map[string]*wire{}, networks: map[model.NetworkID]uint32{}}
	r.pins = filepath.Join(bpfMount(t), "host")
	r.host, r.far = namespace(t, "Eh"), namespace(t, "Ef")
	r.thread = newThread(t, r.host)
	t.Cleanup(func() {
		if r.near != nil {
			unix.Close(r.near.fd)
		}
		r.closeSide()
	})
	r.addWire(t, underlayWire, model.MAC{2, 7, 0, 0, 0, 9})
	r.addWire(t, uplinkWire, model.MAC{2, 7, 0, 0, 0, 8})
	r.addWire(t, sentinel, model.MAC{2, 7, 0, 0, 0, 7})
	run(t, "ip", "-n", r.host, "addr", "add", vtep1.String()+"/24", "dev", underlayWire)
	for _, a := range []netip.Addr{vtep2, conformance.ThirdVTEP} {
		run(t, "ip", "-n", r.host, "neigh", "add", a.String(), "lladdr", mac2.String(), "dev", underlayWire)
	}
	mac, err := model.ParseMAC(strings.Fields(run(t, "ip", "-n", r.host, "-br", "link", "show", underlayWire))[2])
	if err != nil {
		t.Fatal(err)
	}
	r.underMAC = mac
	for _, n := range slices.Concat(conformance.RoutedTopology().Networks, conformance.SharedTopology().Networks) {
		if n.Encap == model.EncapVXLAN {
			r.networks[n.ID] = n.Tag
		}
	}
	return r
}

func packetSocket(ifname string) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return 0, err
	}
	index, err := ifindex(ifname)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index})
	}
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// addWire makes a veth pair: the near end name in the host, and a far end to
// send and receive on.
func (r *rig) addWire(t testing.TB, name string, mac model.MAC) {
	t.Helper()
	far := "f" + name
	if len(far) > 15 {
		far = "f" + name[len(name)-14:]
	}
	run(t, "ip", "-n", r.host, "link", "add", name, "mtu", "2000", "type", "veth", "peer", "name", far, "mtu", "2000", "address", mac.String(), "netns", r.far)
	run(t, "ip", "-n", r.host, "link", "set", name, "up")
	run(t, "ip", "-n", r.far, "link", "set", far, "up")
	w := &wire{}
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(r.far)
		if err == nil {
			err = netns.Set(h)
			h.Close()
		}
		if err == nil {
			w.fd, err = packetSocket(far)
		}
		errs <- err
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	r.wires[name] = w
	t.Cleanup(func() { unix.Close(w.fd) })
}

func (w *wire) send(f []byte) error { return unix.Send(w.fd, f, 0) }

// receive returns all frames that have come in, with their VLAN tag put back.
func (w *wire) receive() [][]byte {
	var out [][]byte
	b, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, on, _, from, err := unix.Recvmsg(w.fd, b, oob, 0)
		if err != nil {
			return out
		}
		if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		f := append([]byte{}, b[:n]...)
		if msgs, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
			for _, m := range msgs {
				// struct tpacket_auxdata: status u32, len, snaplen u32, mac, net, tci, tpid u16
				if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && m.Data[0]&0x10 != 0 {
					f = conformance.Tagged(f, uint32(m.Data[16])|uint32(m.Data[17])<<8)
				}
			}
		}
		out = append(out, f)
	}
}

// settle waits until the processor that packets are sent on has worked off its
// queues: a frame that it queues later has come through, several times, since
// each step of a packet may queue another.
func (r *rig) settle(t testing.TB, near int) {
	t.Helper()
	w := r.wires[sentinel]
	for i := range 5 {
		f := make([]byte, 60)
		copy(f, []byte{2, 9, 9, 9, 9, 9, 2, 9, 9, 9, 9, 8, 0x88, 0xb5, byte(i)})
		if err := unix.Send(near, f, 0); err != nil {
			t.Fatal(err)
		}
		p := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		for back := false; !back; {
			if n, err := unix.Poll(p, 5000); n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatalf("no packets come through any more: %v", err)
			}
			for _, g := range w.receive() {
				back = back || g[14] == byte(i)
			}
		}
	}
}

// inject sends a packet and tells where it came out.
func (r *rig) inject(t testing.TB, p reference.Packet) (v reference.Verdict) {
	t.Helper()
	near, f := p.Port, conformance.Frame(p)
	if p.Host {
		p.SrcMAC, p.DstMAC = desired.RouterMAC, desired.RouterMAC // as on any interface without neighbor resolution
		near, f = desired.HostInterface, conformance.Frame(p)
	}
	switch {
	case p.Uplink:
		near, f = uplinkWire, conformance.Tagged(f, p.VLAN)
	case p.VTEP.IsValid():
		vni, ok := r.networks[p.Network]
		if !ok {
			vni = 0xabcdef
		}
		near, f = underlayWire, conformance.VXLAN(r.underMAC, mac2, p.VTEP, vtep1, DefaultVXLANPort, vni, f)
	}
	r.thread.do(func() { r.openSide(t) })
	in := r.wires[near]
	if p.Host {
		in = r.side
	}
	if in != nil && p.Host {
		mark := 0
		if p.Own {
			mark = desired.OwnMark
		}
		if err := unix.SetsockoptInt(in.fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			t.Fatal(err)
		}
	}
	if in == nil {
		if !p.Host {
			t.Fatalf("no interface %q", near)
		}
		return reference.Verdict{Drop: "no interface"}
	}
	r.thread.do(func() {
		for _, w := range r.wires {
			w.receive()
		}
		if r.side != nil {
			r.side.receive()
		}
		if r.near == nil { // opening one takes the kernel long
			fd, err := packetSocket(sentinel)
			if err != nil {
				t.Error(err)
				return
			}
			r.near = &wire{fd}
		}
		// Who sends on an interface whose program drops the frame hears of it.
		if err := in.send(f); err != nil && (!p.Host || !errors.Is(err, unix.ENOBUFS)) {
			t.Error(err)
			return
		}
		r.settle(t, r.near.fd)
	})
	for name, w := range r.wires {
		for _, g := range w.receive() {
			r.collect(t, &v, p, near, name, g)
		}
	}
	if r.side != nil {
		for _, g := range r.side.receive() {
			if p.Host {
				if v.Answer = conformance.ReadAnswer(g); v.Answer != nil {
					continue
				}
			}
			if v.Sent = read(t, g); v.Sent != nil {
				v.Host = true
			}
		}
	}
	slices.Sort(v.Ports)
	slices.SortFunc(v.VTEPs, netip.Addr.Compare)
	if len(v.Ports) == 0 && len(v.VTEPs) == 0 && !v.Uplink && !v.Host && v.Answer == nil {
		v.Drop = "dropped"
	}
	return v
}

func (r *rig) collect(t testing.TB, v *reference.Verdict, p reference.Packet, near, name string, g []byte) {
	t.Helper()
	switch {
	case len(g) < 14 || g[12] == 0x88 && g[13] == 0xb5:
	case name == underlayWire:
		if dst, vni, inner, ok := conformance.Unwrap(g, DefaultVXLANPort); ok {
			v.Sent = seen(inner)
			v.VTEPs = append(v.VTEPs, dst)
			for n, x := range r.networks {
				if x == vni {
					v.Network = n
				}
			}
		}
	case name == near:
		if name == uplinkWire && len(g) > 16 {
			g = untagged(g)
		}
		if v.Answer = conformance.AnswerTo(p, g); v.Answer != nil {
			return
		}
		// A container that is its own backend gets what it sends.
		if v.Sent = seen(g); v.Sent == nil {
			t.Errorf("frame %x came back from where it was sent", g)
			return
		}
		v.Ports = append(v.Ports, name)
	case name == uplinkWire:
		v.Uplink, v.VLAN, v.Sent = true, uint32(g[14])<<8|uint32(g[15]), seen(untagged(g))
	default:
		v.Ports, v.Sent = append(v.Ports, name), seen(g)
	}
}

func untagged(g []byte) []byte { return append(append([]byte{}, g[:12]...), g[16:]...) }

// seen is what a receiver reads in a frame; nil = nothing, or it would not take it.
func seen(g []byte) *reference.Packet {
	p, err := conformance.ReadPacket(g)
	if err != nil {
		return nil
	}
	return p
}

// inHost is a driver whose calls are made in the host's namespace; it takes
// back a fault that an Apply did not meet.
type inHost struct {
	*Driver
	r *rig
}

func (d inHost) Apply(ctx context.Context, want desired.Host) (rep driver.Report, err error) {
	d.r.thread.do(func() { rep, err = d.Driver.Apply(ctx, want) })
	d.setFault(nil)
	if d.r.lasting {
		d.r.last(d.r.t)
	}
	return rep, err
}

// last makes every port one that has stood for long.
func (r *rig) last(t testing.TB) {
	t.Helper()
	r.thread.do(func() {
		known := map[string]linkDue{}
		r.drv.dueForLink(known, time.Now())
		for _, name := range r.drv.dueForLink(known, time.Now().Add(linkAfter)) {
			err := r.drv.linkPort(context.Background(), name, known[name].index)
			if errors.Is(err, unix.EEXIST) { // the driver's own round has given it one meanwhile
				continue
			}
			if err != nil && !errors.Is(err, model.ErrConflict) {
				t.Errorf("link %s: %v", name, err)
			}
		}
	})
}

func (d *Driver) setFault(fn func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dp.tables.w.fault = fn
}

func (r *rig) config(t testing.TB) Config {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if r.log != nil {
		log = slog.New(slog.NewTextHandler(r.log, nil))
	} else if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	sizes := map[string]uint32{"conns": 16384, "halfopen": 16384}
	maps.Copy(sizes, r.sizes)
	cfg := Config{PinDir: r.pins, Uplinks: r.uplinks, Attach: r.attach, Sizes: sizes, Log: log}
	if len(r.sizes) == 0 {
		cfg.load = func(dir string, sizes map[string]uint32) (*objects, error) { return lend(t, dir, sizes) }
	}
	return cfg
}

func (r *rig) open(t testing.TB) driver.Driver {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	r.thread.do(func() { r.drv, err = open(ctx, r.config(t)) })
	if err != nil {
		t.Fatal(err)
	}
	return inHost{r.drv, r}
}

// harness lets the conformance suite work on a rig.
func (r *rig) harness() conformance.Harness {
	return conformance.Harness{
		Open:         r.open,
		AddInterface: r.addWire,
		RemoveInterface: func(t testing.TB, name string) {
			t.Helper()
			run(t, "ip", "-n", r.host, "link", "del", name)
		},
		DownInterface: func(t testing.TB, name string, down bool) {
			t.Helper()
			run(t, "ip", "-n", r.host, "link", "set", name, map[bool]string{true: "down", false: "up"}[down])
		},
		RenameInterface: func(t testing.TB, from, to string) {
			t.Helper()
			for _, set := range [][]string{{from, "down"}, {from, "name", to}, {to, "up"}} { // older kernels rename what is down only
				run(t, append([]string{"ip", "-n", r.host, "link", "set"}, set...)...)
			}
		},
		HasInterface: func(t testing.TB, name string) bool {
			t.Helper()
			return exec.CommandContext(t.Context(), "ip", "-n", r.host, "link", "show", name).Run() == nil
		},
		Unmanaged: r.foreign,
		Garbage:   r.garbage,
		Break: func(_ testing.TB, n int) {
			r.drv.setFault(func() error {
				if n--; n == -1 {
					return errors.New("broken by the test")
				}
				return nil
			})
		},
		Send:   r.inject,
		Frames: r.frames,
		Egress: true, Egress6: true,
	}
}
