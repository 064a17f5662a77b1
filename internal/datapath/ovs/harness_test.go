package ovs

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The outside world of the switch under test: an underlay bridge with the tunnel's address
// and one wire, and a wire as uplink. Everything is in one namespace; veth pairs with
// unconfigured far ends are the containers.
var (
	vtep1   = netip.MustParseAddr("192.168.7.1")
	vtep2   = netip.MustParseAddr("192.168.7.2")
	mac2    = model.MAC{0x02, 0x07, 0, 0, 0, 2}
	etherMe = []byte{0x88, 0xb5} // IEEE 802 local experimental: comes straight back
)

const (
	underlayBridge = "brUnder"
	underlayWire   = "under0"
	uplinkWire     = "uplink0"
)

// rig is a switch with its outside world.
type rig struct {
	*ovstest.Server
	wires    map[string]*wire // far ends, by name of the near end
	underMAC model.MAC
	drv      *Driver
	mutation pipeline.Mutation
	networks map[model.NetworkID]uint32 // VNI by network
	bounced  uint32
	whole    testing.TB // the test that the rig is of
}

func newRig(t testing.TB) *rig {
	t.Helper()
	ovstest.Require(t, "sysctl")
	r := &rig{Server: ovstest.Start(t), wires: map[string]*wire{}, networks: map[model.NetworkID]uint32{}, whole: t}
	for _, which := range []string{"all", "default"} { // no neighbour discovery of the kernel's own
		r.Run("ip", "netns", "exec", r.NS, "sysctl", "-q", "-w", "net.ipv6.conf."+which+".disable_ipv6=1")
	}
	r.addWire(t, underlayWire, model.MAC{2, 7, 0, 0, 0, 9})
	r.addWire(t, uplinkWire, model.MAC{2, 7, 0, 0, 0, 8})
	r.underlay(t)
	return r
}

func (r *rig) underlay(t testing.TB) {
	t.Helper()
	r.Vsctl("add-br", underlayBridge, "--", "set", "bridge", underlayBridge, "datapath_type="+ovstest.Datapath(),
		"--", "add-port", underlayBridge, underlayWire)
	r.Run("ip", "-n", r.NS, "addr", "add", vtep1.String()+"/24", "dev", underlayBridge)
	r.Run("ip", "-n", r.NS, "link", "set", underlayBridge, "up")
	r.learn(t)
}

// learn tells the switch the neighbours behind the tunnel: one stands in for all.
func (r *rig) learn(t testing.TB) {
	t.Helper()
	out := strings.Fields(r.Run("ip", "-n", r.NS, "-br", "link", "show", underlayBridge))
	mac, err := model.ParseMAC(out[2])
	if err != nil {
		t.Fatal(err)
	}
	r.underMAC = mac
	for _, vtep := range []netip.Addr{vtep2, conformance.ThirdVTEP} {
		if !ovstest.Kernel() {
			r.Appctl("tnl/neigh/set", underlayBridge, vtep.String(), mac2.String())
			continue
		}
		r.Run("ip", "-n", r.NS, "neigh", "replace", vtep.String(), "lladdr", mac2.String(), "dev", underlayBridge)
		r.Appctl("upcall/disable-megaflows") // so every packet and every bounce meets the switch in the order sent
	}
	r.Ofctl(underlayBridge, "add-flow", "priority=65535,dl_type=0x88b5,actions=IN_PORT")
}

// wire is the far end of a veth pair, or the host's interface.
type wire struct {
	fd, index int
}

// addWire makes a veth pair: the near end name, and a far end to send and
// receive on.
func (r *rig) addWire(t testing.TB, name string, mac model.MAC) {
	t.Helper()
	far := "f" + name
	if len(far) > 15 {
		far = "f" + name[len(name)-14:]
	}
	r.Run("ip", "-n", r.NS, "link", "add", name, "type", "veth", "peer", "name", far, "address", mac.String())
	for _, l := range []string{name, far} {
		r.Run("ip", "-n", r.NS, "link", "set", l, "up")
	}
	r.wires[name] = r.listen(t, far)
}

// hostWire returns the host's interface, which the driver makes and removes.
func (r *rig) hostWire(t testing.TB) *wire {
	t.Helper()
	index := 0
	_ = inNamespace(r.NS, func() (err error) { index, err = interfaceIndex(desired.HostInterface); return err })
	w := r.wires[desired.HostInterface]
	switch {
	case index == 0:
		delete(r.wires, desired.HostInterface)
		return nil
	case w == nil || w.index != index:
		r.Run("ip", "-n", r.NS, "link", "set", desired.HostInterface, "up")
		w = r.listen(r.whole, desired.HostInterface)
		r.wires[desired.HostInterface] = w
		r.bounce(t, w, func([]byte) {}) // of a new device in user space the first frame may be lost
	}
	return w
}

// listen opens an interface.
func (r *rig) listen(t testing.TB, name string) *wire {
	t.Helper()
	w := &wire{}
	if err := inNamespace(r.NS, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		w.fd = fd
		if w.index, err = interfaceIndex(name); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: w.index})
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

func interfaceIndex(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return 0, err
	}
	return int(req.Uint32()), nil
}

func htons(v uint16) uint16         { return v<<8 | v>>8 }
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

// bounce sends a frame that the switch returns and waits for it: twice, since
// the first one may share a batch with what was sent before. The kernel's
// datapath asks user space about each packet that it meets first, again after
// connection tracking and again outside of a tunnel. It asks about each bounce too,
// behind the packets that wait there, so there are more bounces than a packet has
// such questions.
func (r *rig) bounce(t testing.TB, w *wire, seen func([]byte)) {
	t.Helper()
	rounds := 2
	if ovstest.Kernel() {
		rounds = 5
	}
	for i := range rounds {
		r.bounced++
		f := make([]byte, 60)
		copy(f, []byte{2, 9, 9, 9, 9, 9, 2, 9, byte(r.bounced >> 24), byte(r.bounced >> 16), byte(r.bounced >> 8), byte(r.bounced)})
		copy(f[12:], etherMe)
		f[14] = byte(i)
		copy(f[15:], f[6:12]) // the source may be rewritten
		if err := w.send(f); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(ovstest.Patience(5 * time.Second))
		for back := false; !back; {
			left := time.Until(deadline)
			if left <= 0 {
				t.Fatalf("the switch does not answer any more, bounce %d of the test, round %d:\n%s", r.bounced, i, r.Log())
			}
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int(min(left, time.Second).Milliseconds())+1)
			if err == nil && n == 0 { // a switch that takes a new device in may lose what comes by it
				err = w.send(f)
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			for _, g := range w.receive() {
				if slices.Equal(g[12:14], etherMe) {
					back = back || slices.Equal(g[14:21], f[14:21])
					continue
				}
				seen(g)
			}
		}
	}
}

// entry is where a packet comes in, and the frame that it has there.
func (r *rig) entry(p reference.Packet, f []byte) (near string, frame []byte) {
	switch {
	case p.Host:
		return desired.HostInterface, f
	case p.Uplink:
		return uplinkWire, conformance.Tagged(f, p.VLAN)
	case p.VTEP.IsValid():
		vni, ok := r.networks[p.Network]
		if !ok && p.Network != 0 { // 0 is of probes
			vni = 0xabcdef
		}
		return underlayWire, conformance.VXLAN(r.underMAC, mac2, p.VTEP, vtep1, DefaultVXLANPort, vni, f)
	}
	return p.Port, f
}

// inject sends a packet and tells where it came out.
func (r *rig) inject(t testing.TB, p reference.Packet) reference.Verdict {
	t.Helper()
	r.hostWire(t)
	near, f := r.entry(p, conformance.Frame(p))
	in := r.wires[near]
	if in == nil {
		t.Fatalf("no interface %q", near)
	}
	for _, w := range r.wires {
		w.receive()
	}
	mark := 0
	if p.Own {
		mark = desired.OwnMark
	}
	if err := unix.SetsockoptInt(in.fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
		t.Fatal(err)
	}
	if err := in.send(f); err != nil {
		t.Fatal(err)
	}
	var v reference.Verdict
	collect := func(name string, g []byte) {
		switch {
		case len(g) < 14 || slices.Equal(g[12:14], etherMe):
		case name == underlayWire:
			if dst, vni, inner, ok := conformance.Unwrap(g, DefaultVXLANPort); ok {
				v.VTEPs = append(v.VTEPs, dst)
				for n, x := range r.networks {
					if x == vni {
						v.Network = n
					}
				}
				v.Sent, _ = conformance.ReadPacket(inner) // what was damaged may leave so
			}
		case name == near:
			if name == uplinkWire && len(g) > 16 {
				g = append(append([]byte{}, g[:12]...), g[16:]...)
			}
			if a := conformance.AnswerTo(p, g); a != nil {
				v.Answer = a
			} else if own := readPacket(t, g); own != nil && own.SrcMAC == desired.RouterMAC { // from the sender to itself, as a service
				if v.Sent = own; name == desired.HostInterface {
					v.Host = true
				} else {
					v.Ports = append(v.Ports, name)
				}
			} else {
				t.Errorf("frame %x came back from where it was sent", g)
			}
		case name == desired.HostInterface:
			v.Host, v.Sent = true, readPacket(t, g)
		case name == uplinkWire:
			v.Uplink, v.VLAN = true, uint32(g[14])<<8|uint32(g[15])
			v.Sent, _ = conformance.ReadPacket(append(slices.Clone(g[:12]), g[16:]...))
		default:
			v.Ports, v.Sent = append(v.Ports, name), readPacket(t, g)
		}
	}
	r.bounce(t, in, func(g []byte) { collect(near, g) })
	// A request whose translation the driver ends comes to it again, perhaps to be refused.
	for round := 0; round < 2 && v.Answer == nil && len(v.Ports) == 0 && r.answered(t); round++ {
		r.bounce(t, in, func(g []byte) { collect(near, g) })
	}
	for name, w := range r.wires {
		if w != in {
			for _, g := range w.receive() {
				collect(name, g)
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

// answered waits until the driver has answered the packets that have come to it, and
// tells whether it answers any: the switch has sent these packets before it answers a
// first barrier, and sent the driver's answers before it answers a second one.
func (r *rig) answered(t testing.TB) bool {
	t.Helper()
	host := r.drv.responder.latest.Load()
	if host == nil {
		return false
	}
	answers := host.Services.Len() > 0
	for _, n := range host.Networks.All() {
		answers = answers || n.Joined != 0
	}
	if !answers {
		return false
	}
	for range 2 {
		conn := r.drv.responder.answerc.Load()
		if conn == nil {
			return false
		}
		if err := conn.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// readPacket reads what came out, and fails the test when its receiver would
// throw it away.
func readPacket(t testing.TB, f []byte) *reference.Packet {
	t.Helper()
	p, err := conformance.ReadPacket(f)
	if err != nil {
		t.Error(err)
	}
	return p
}

func (r *rig) config(t testing.TB) Config {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	cfg := Config{
		OVSDB: r.DB, RunDir: r.RunDir, Bridge: "contivBr", Datapath: ovstest.Datapath(), Uplinks: []string{uplinkWire},
		Log: log, mutation: r.mutation,
	}
	if r.NS != "" {
		cfg.links = linksOf(t, r.NS)
	}
	return cfg
}

// open starts a driver on the rig.
func (r *rig) open(t testing.TB) *Driver {
	t.Helper()
	d := opened(t, r.config(t))
	// With a cookie like those of what the switch learns, which are not the driver's to judge.
	r.Ofctl("contivBr", "add-flow", fmt.Sprintf("cookie=%#x,priority=65535,dl_type=0x88b5,actions=IN_PORT", pipeline.AffineMagic|1<<47))
	r.drv = d
	return d
}

// harness lets the conformance suite work on a rig.
func (r *rig) harness() conformance.Harness {
	for _, n := range slices.Concat(conformance.RoutedTopology().Networks, conformance.SharedTopology().Networks) {
		if n.Encap == model.EncapVXLAN {
			r.networks[n.ID] = n.Tag
		}
	}
	return conformance.Harness{
		Open: func(t testing.TB) driver.Driver {
			t.Helper()
			return disarmed{r.open(t), r.NS}
		},
		AddInterface: func(t testing.TB, name string, mac model.MAC) {
			t.Helper()
			r.addWire(t, name, mac)
		},
		RemoveInterface: func(_ testing.TB, name string) { r.Run("ip", "-n", r.NS, "link", "del", name) },
		DownInterface: func(_ testing.TB, name string, down bool) {
			r.Run("ip", "-n", r.NS, "link", "set", name, map[bool]string{true: "down", false: "up"}[down])
		},
		HasInterface: func(t testing.TB, name string) bool {
			t.Helper()
			return exec.CommandContext(t.Context(), "ip", "-n", r.NS, "link", "show", name).Run() == nil
		},
		Unmanaged: r.foreign,
		Garbage:   r.garbage,
		Break: func(_ testing.TB, n int) {
			r.drv.setFault(func() error {
				n--
				if n == -1 {
					return errors.New("broken by the test")
				}
				return nil
			})
		},
		Send:    r.inject,
		Frames:  r.frames,
		Egress:  true,
		Egress6: true,
		Slow:    ovstest.Kernel(), // the kernels are emulated
		SkipPacket: func(p reference.Packet) string {
			if p.Frag != nil {
				return "the switch keeps fragments until all are there"
			}
			if ovstest.Kernel() && p.ICMPType == reference.NDNeighborSolicit && p.Proto == model.ProtoICMPv6 {
				return "who is asked for answers, and not the switch: TestKernelAcceptsTheRespondersAnswers"
			}
			return ""
		},
		Differs: differs(),
	}
}

// foreign makes a bridge, a port on our bridge, a flow on our bridge.
func (r *rig) foreign(testing.TB) func(testing.TB) {
	r.Vsctl("--may-exist", "add-br", "brForeign", "--", "set", "bridge", "brForeign", "datapath_type="+ovstest.Datapath(),
		"--", "--may-exist", "add-port", "contivBr", "alien0", "--", "set", "interface", "alien0", "type=internal")
	r.Ofctl("contivBr", "add-flow", "cookie=0x1234,table=77,priority=5,ip,actions=drop")
	state := func() string {
		return r.Vsctl("list-br") + r.Vsctl("list-ports", "brForeign") + r.Vsctl("get", "port", "alien0", "_uuid") +
			r.Ofctl("contivBr", "dump-flows", "cookie=0x1234/-1", "--no-stats") + r.Ofctl(underlayBridge, "dump-flows", "--no-stats")
	}
	before := state()
	return func(t testing.TB) {
		t.Helper()
		if after := state(); after != before {
			t.Errorf("foreign objects before:\n%s\nafter:\n%s", before, after)
		}
	}
}

// garbage makes a port and flows as an agent of another time would have left.
func (r *rig) garbage(testing.TB) func(testing.TB) {
	r.Vsctl("add-port", "contivBr", "cvgarbage", "--", "set", "interface", "cvgarbage", "type=internal",
		"--", "set", "port", "cvgarbage", "external_ids:contiv=port")
	r.Ofctl("contivBr", "add-flow", fmt.Sprintf("cookie=%#x,table=0,priority=1000,in_port=99,actions=normal", pipeline.CookieMagic|77))
	return func(t testing.TB) {
		t.Helper()
		if s := r.Vsctl("list-ports", "contivBr"); strings.Contains(s, "cvgarbage") {
			t.Errorf("ports: %s", s)
		}
		if s := r.Ofctl("contivBr", "dump-flows"); strings.Contains(strings.ToLower(s), "normal") {
			t.Errorf("flows: %s", s)
		}
	}
}
