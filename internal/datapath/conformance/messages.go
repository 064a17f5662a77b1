package conformance

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// messages is how many frames a test of memberships may send a port: fewer than a driver
// hands on in a second.
const messages = 40

// onesSum is the checksum of RFC 1071.
func onesSum(parts ...[]byte) uint16 {
	b, s := slices.Concat(parts...), uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// igmp is a message of a type about a group, of an even number of bytes, sent to dst.
func igmp(src model.Endpoint, dst string, typ byte, group string, rest ...byte) []byte {
	p := append([]byte{typ, 0, 0, 0}, netip.MustParseAddr(group).AsSlice()...)
	if typ == 0x22 { // a report of version 3: one record, to hear all sources
		p = append([]byte{typ, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0}, netip.MustParseAddr(group).AsSlice()...)
	}
	p = append(p, rest...)
	binary.BigEndian.PutUint16(p[2:], onesSum(p))
	to := netip.MustParseAddr(dst)
	ip := append([]byte{0x46, 0xc0, 0, byte(24 + len(p)), 0, 0, 0, 0, 1, 2, 0, 0}, slices.Concat(src.IPv4.AsSlice(), to.AsSlice(), []byte{0x94, 4, 0, 0})...)
	binary.BigEndian.PutUint16(ip[10:], onesSum(ip))
	mac := groupMAC(to)
	return slices.Concat(mac[:], src.MAC[:], []byte{8, 0}, ip, p)
}

// mld is a message of a type about a group, sent to dst from the link-local address of
// the interface.
func mld(src model.Endpoint, dst string, typ byte, group string) []byte {
	p := append([]byte{typ, 0, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr(group).AsSlice()...)
	switch typ {
	case 143: // a report of version 2: one record, to hear all sources
		p = append([]byte{typ, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0}, netip.MustParseAddr(group).AsSlice()...)
	case 130:
		p = append(p, 2, 125, 0, 0)
	}
	to, from := netip.MustParseAddr(dst), src.MAC.LinkLocal()
	binary.BigEndian.PutUint16(p[2:], onesSum(from.AsSlice(), to.AsSlice(), []byte{0, 0, 0, byte(len(p)), 0, 0, 0, 58}, p))
	mac := groupMAC(to)
	return slices.Concat(mac[:], src.MAC[:], []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(8 + len(p)), 0, 1}, from.AsSlice(), to.AsSlice(),
		[]byte{58, 0, 5, 2, 0, 0, 1, 0}, p)
}

// floodingHost opens the data plane of h1 in the standard topology, on networks that flood
// ARP, where most frames go somewhere; it skips a harness without Frames.
func floodingHost(t *testing.T, h Harness) (Topology, *bench) {
	t.Helper()
	if h.Frames == nil {
		t.Skip("the harness has no Frames")
	}
	top := StandardTopology()
	top.Global.ArpMode = model.ArpFlood // where most goes somewhere
	b := open(t, h)
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	b.apply(t, w.Desired["h1"])
	return top, b
}

// testMessages: what an endpoint says of its own memberships the driver hands over, and
// on VLAN networks the uplink has it, once; what only routers say goes nowhere, as does
// what is said in another one's name or comes by the tunnel; the fabric's questions are
// handed over; and no endpoint hears any of it.
func testMessages(t *testing.T, h Harness) {
	t.Helper()
	top, b := floodingHost(t, h)
	reports := b.drv.Capabilities().Memberships.Reports()
	endpoint := func(network model.NetworkName, id model.EndpointID) model.Endpoint {
		return top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: network}, ID: id})
	}
	n, liars := byte(0), uint64(0) // messages that are no endpoint's to send
	// send sends a frame and then a membership report as a mark: once the mark is through,
	// the frame is too. lan1 sends the mark, or web1 if that sends the frame; it may overtake
	// one of the uplink's, which is always handed over. It returns
	// where the frame came out, and which of it were handed over as reports.
	send := func(name string, from reference.Packet, frame []byte) (out map[string]int, heard []driver.MembershipReport) {
		t.Helper()
		if n++; n > messages {
			t.Fatalf("%s: too many messages for one second", name)
		}
		last, by := endpoint("vl", "lan1"), reference.Packet{}
		by.Port = compile.IfName(last.Key)
		if from.Port == compile.IfName(endpoint("vx", "web1").Key) {
			last, by = endpoint("vx", "web1"), from
		}
		mark := igmp(last, "239.77.0.1", 0x16, netip.AddrFrom4([4]byte{239, 77, 1, n}).String())
		marked, byUplink := false, last.Key.Network.Name == "vx" // which has none
		came := h.Frames(t, []reference.Packet{from, by}, [][]byte{frame, mark}, func(came map[string][][]byte) bool {
			for more := true; more; {
				select {
				case r := <-reports:
					marked = marked || bytes.Equal(r.Frame, mark)
					if bytes.Equal(r.Frame, frame) {
						heard = append(heard, r)
					}
				default:
					more = false
				}
			}
			for _, g := range came[""] {
				byUplink = byUplink || bytes.HasSuffix(g, mark[12:])
			}
			return marked && byUplink && (!from.Uplink || len(heard) > 0)
		})
		out = map[string]int{}
		for at, frames := range came {
			for _, g := range frames {
				if bytes.Contains(g, frame[14:]) {
					out[at]++
				}
			}
		}
		return out, heard
	}
	for _, e := range []model.Endpoint{endpoint("vl", "lan1"), endpoint("vx", "web1")} {
		other := e
		other.IPv4, other.MAC = endpoint("vl", "lonely1").IPv4, endpoint("vl", "lonely1").MAC
		liar := e
		liar.IPv4 = other.IPv4
		port := reference.Packet{Port: compile.IfName(e.Key)}
		for name, m := range map[string]struct {
			frame  []byte
			member bool
		}{
			"IGMPv1":                         {igmp(e, "239.1.1.1", 0x12, "239.1.1.1"), true},
			"IGMPv2":                         {igmp(e, "239.1.1.1", 0x16, "239.1.1.1"), true},
			"IGMPv2 leaves":                  {igmp(e, "224.0.0.2", 0x17, "239.1.1.1"), true},
			"IGMPv3":                         {igmp(e, "224.0.0.22", 0x22, "239.1.1.1"), true},
			"MLDv1":                          {mld(e, "ff05::1", 131, "ff05::1"), true},
			"MLDv1 leaves":                   {mld(e, "ff02::2", 132, "ff05::1"), true},
			"MLDv2":                          {mld(e, "ff02::16", 143, "ff05::1"), true},
			"asks by IGMPv2":                 {igmp(e, "224.0.0.1", 0x11, "0.0.0.0"), false},
			"asks by IGMPv3":                 {igmp(e, "224.0.0.1", 0x11, "0.0.0.0", 2, 125, 0, 0), false},
			"asks by IGMP for a group":       {igmp(e, "239.1.1.1", 0x11, "239.1.1.1"), false},
			"asks by IGMP as if it reported": {igmp(e, "224.0.0.22", 0x11, "0.0.0.0"), false},
			"says that it is a router":       {igmp(e, "224.0.0.106", 0x30, "0.0.0.0"), false},
			"DVMRP":                          {igmp(e, "224.0.0.4", 0x13, "0.0.0.0"), false},
			"asks by MLD":                    {mld(e, "ff02::1", 130, "::"), false},
			"in another one's name":          {igmp(other, "239.1.1.1", 0x16, "239.1.1.1"), false},
			"from another one's address":     {igmp(liar, "239.1.1.1", 0x16, "239.1.1.1"), false},
			"in another one's name, by MLD":  {mld(other, "ff02::16", 143, "ff05::1"), false},
		} {
			out, heard := send(name, port, m.frame)
			if strings.Contains(name, "another one's") || name == "asks by MLD" {
				liars++
			}
			want := map[string]int{}
			if m.member && e.Key.Network.Name == "vl" {
				want[""] = 1
			}
			if len(out) != len(want) || out[""] != want[""] {
				t.Errorf("%s of %s: it came out at %v, want %v (\"\" is the uplink)", name, e.Key.ID, out, want)
			}
			if m.member && (len(heard) != 1 || heard[0].Port != port.Port) {
				t.Errorf("%s of %s: handed over %d times, want once: %+v", name, e.Key.ID, len(heard), heard)
			}
		}
	}
	db2 := endpoint("vx", "db2")
	lan := endpoint("vl", "lan2")
	vl, vx := top.Network(lan.Key.Network), top.Network(endpoint("vx", "web1").Key.Network)
	for name, frame := range map[string][]byte{"IGMP": igmp(lan, "224.0.0.1", 0x11, "0.0.0.0"), "MLD": mld(lan, "ff02::1", 130, "::")} {
		out, heard := send(name, reference.Packet{Uplink: true, VLAN: vl.Tag}, frame)
		if len(out) != 0 || len(heard) != 1 || heard[0].Port != "" || heard[0].Network != vl.ID {
			t.Errorf("the fabric asks by %s: it came out at %v, handed over: %+v", name, out, heard)
		}
	}
	for name, frame := range map[string][]byte{
		"a report": igmp(db2, "224.0.0.22", 0x22, "239.1.1.1"), "a question": igmp(db2, "224.0.0.1", 0x11, "0.0.0.0"), "a question by MLD": mld(db2, "ff02::1", 130, "::"),
	} {
		if out, heard := send(name, reference.Packet{VTEP: top.vtep("h2"), Network: vx.ID}, frame); len(out) != 0 || len(heard) != 0 {
			t.Errorf("%s comes by the tunnel: it came out at %v, handed over: %+v", name, out, heard)
		}
	}
	// It is dropped for what it is, and not for want of a connection that tracking knows
	// of: whether it knows such messages is the kernel's affair.
	var drops map[string]uint64
	for end := time.Now().Add(framesWait); drops[driver.DropSpoof] < liars && time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		st, err := b.drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drops = st.Drops
	}
	if drops[driver.DropSpoof] < liars || drops[driver.DropInvalid] != 0 {
		t.Errorf("drops %v, want %d of kind %s at least, and none of kind %s", drops, liars, driver.DropSpoof, driver.DropInvalid)
	}
}

// framesWait is how long Frames waits.
const framesWait = 30 * time.Second

// SendFrames is Harness.Frames for who can send a frame and say what has come out since.
func SendFrames(t testing.TB, send func(i int), receive func() map[string][][]byte, frames int, done func(map[string][][]byte) bool) map[string][][]byte {
	t.Helper()
	receive() // what came before
	for i := range frames {
		send(i)
	}
	came := map[string][][]byte{}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(framesWait); ; <-tick.C {
		for at, all := range receive() {
			came[at] = append(came[at], all...)
		}
		if done(came) {
			return came
		}
		if time.Now().After(end) {
			t.Fatalf("what was sent last did not come out in %v", framesWait)
		}
	}
}

// Received is what receive returns of each wire, of the uplink's under "".
func Received[W any](wires map[string]W, uplink string, receive func(W) [][]byte) map[string][][]byte {
	out := map[string][][]byte{}
	for name, w := range wires {
		if name == uplink {
			name = ""
		}
		out[name] = receive(w)
	}
	return out
}
