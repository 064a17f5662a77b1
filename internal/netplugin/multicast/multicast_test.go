package multicast

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/checksum"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// record is one of a report of IGMPv3 or MLDv2.
type record struct {
	kind    byte
	group   string
	sources []string
}

func addrBytes(s string) []byte { return netip.MustParseAddr(s).AsSlice() }

func records(of []record) []byte {
	out := []byte{0, 0, 0, byte(len(of))}
	for _, r := range of {
		out = append(out, r.kind, 0, 0, byte(len(r.sources)))
		out = append(out, addrBytes(r.group)...)
		for _, s := range r.sources {
			out = append(out, addrBytes(s)...)
		}
	}
	return out
}

// igmp is a frame with a message, as Linux sends it: with the router's alert.
func igmp(typ byte, rest []byte) []byte {
	p := append([]byte{typ, 0, 0, 0}, rest...)
	binary.BigEndian.PutUint16(p[2:], ^checksum.Sum(0, p))
	ip := []byte{0x46, 0xc0, 0, byte(24 + len(p)), 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 1, 1, 2, 224, 0, 0, 22, 0x94, 4, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(24+len(p)))
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(0, ip))
	return slices.Concat(make([]byte, 12), []byte{8, 0}, ip, p)
}

// mld is the same for IPv6.
func mld(typ byte, rest []byte) []byte {
	p := append([]byte{typ, 0, 0, 0}, rest...)
	ip := slices.Concat([]byte{0x60, 0, 0, 0, 0, 0, 0, 1}, addrBytes("fe80::2:aff:fe01:102"), addrBytes("ff02::16"))
	binary.BigEndian.PutUint16(ip[4:], uint16(8+len(p)))
	binary.BigEndian.PutUint16(p[2:], ^checksum.Upper(58, ip[8:], p))
	return slices.Concat(make([]byte, 12), []byte{0x86, 0xdd}, ip, []byte{58, 0, 5, 2, 0, 0, 1, 0}, p)
}

func report4(of ...record) []byte { return igmp(igmpReport3, records(of)) }
func report6(of ...record) []byte { return mld(mldReport2, records(of)) }

// TestMessagesAreDecoded: each kind of message says what the RFCs have it say.
func TestMessagesAreDecoded(t *testing.T) {
	join, leave := func(g string) change { return change{netip.MustParseAddr(g), true} }, func(g string) change { return change{netip.MustParseAddr(g), false} }
	for name, test := range map[string]struct {
		frame []byte
		want  []change
	}{
		"IGMPv1 report":      {igmp(igmpReport1, addrBytes("239.1.1.1")), []change{join("239.1.1.1")}},
		"IGMPv2 report":      {igmp(igmpReport2, addrBytes("239.1.1.1")), []change{join("239.1.1.1")}},
		"IGMPv2 leave":       {igmp(igmpLeave2, addrBytes("239.1.1.1")), []change{leave("239.1.1.1")}},
		"IGMPv3 any source":  {report4(record{toExclude, "239.1.1.1", nil}, record{isExclude, "239.1.1.2", []string{"10.1.1.3"}}), []change{join("239.1.1.1"), join("239.1.1.2")}},
		"IGMPv3 some":        {report4(record{isInclude, "232.1.1.1", []string{"10.1.1.3"}}, record{allowNew, "232.1.1.2", []string{"10.1.1.3"}}), []change{join("232.1.1.1"), join("232.1.1.2")}},
		"IGMPv3 none":        {report4(record{toInclude, "239.1.1.1", nil}, record{isInclude, "239.1.1.2", nil}, record{blockOld, "239.1.1.3", []string{"10.1.1.3"}}), []change{leave("239.1.1.1")}},
		"IGMPv3 of the link": {report4(record{toExclude, "224.0.0.251", nil}), nil},
		"MLDv1 report":       {mld(mldReport1, slices.Concat(make([]byte, 4), addrBytes("ff05::1"))), []change{join("ff05::1")}},
		"MLDv1 done":         {mld(mldDone1, slices.Concat(make([]byte, 4), addrBytes("ff05::1"))), []change{leave("ff05::1")}},
		"MLDv2":              {report6(record{toExclude, "ff0e::1:2", nil}, record{toExclude, "ff02::1:ff01:102", nil}, record{toInclude, "ff05::3", nil}), []change{join("ff0e::1:2"), leave("ff05::3")}},
	} {
		m, ok := decode(test.frame)
		if !ok || m.query || !slices.Equal(m.changes, test.want) {
			t.Errorf("%s: %v %+v, want %v", name, ok, m, test.want)
		}
		summed := 14 // from here on checksums cover all
		if name[0] == 'M' {
			summed = 14 + 40 + 8
		}
		for i := 14; i < len(test.frame); i++ {
			broken := slices.Clone(test.frame)
			broken[i] ^= 0x10
			if m, ok := decode(broken); ok && i >= summed {
				t.Errorf("%s with byte %d changed: %+v", name, i, m)
			}
			if _, ok := decode(test.frame[:i]); ok {
				t.Errorf("%s cut at %d is taken", name, i)
			}
		}
	}
	for name, f := range map[string][]byte{"IGMP": query4(within), "MLD": query6(within)} {
		if m, ok := decode(f); !ok || !m.query || m.v6 != (name == "MLD") {
			t.Errorf("our own question of %s: %v %+v", name, ok, m)
		}
	}
	far := report4(record{toExclude, "239.1.1.1", nil})
	far[14+8] = 2
	binary.BigEndian.PutUint16(far[14+10:], 0)
	binary.BigEndian.PutUint16(far[14+10:], ^checksum.Sum(0, far[14:14+24]))
	if _, ok := decode(far); ok {
		t.Error("a report that was routed is taken")
	}
	far = report6(record{toExclude, "ff0e::1", nil})
	far[14+7] = 2 // no checksum covers it
	if _, ok := decode(far); ok {
		t.Error("a report of MLD that was routed is taken")
	}
}

// TestUnknownMessagesAreRefused: what the protocols do not have is none of their messages.
func TestUnknownMessagesAreRefused(t *testing.T) {
	again := func(f []byte) []byte { // with a new header checksum
		binary.BigEndian.PutUint16(f[14+10:], 0)
		binary.BigEndian.PutUint16(f[14+10:], ^checksum.Sum(0, f[14:14+24]))
		return f
	}
	first := igmp(igmpReport2, addrBytes("239.1.1.1"))
	first[14+6] = 0x20 // more fragments
	later := igmp(igmpReport2, addrBytes("239.1.1.1"))
	later[14+7] = 1
	short := igmp(igmpReport2, nil)
	many := make([]record, maxRecords+1)
	for i := range many {
		many[i] = record{toExclude, "239.1.1.1", nil}
	}
	global := report6(record{toExclude, "ff0e::1", nil})
	copy(global[14+8:], addrBytes("fd00::1"))
	sum := func(f []byte, at int) []byte { // of an MLD message
		binary.BigEndian.PutUint16(f[at+2:], 0)
		binary.BigEndian.PutUint16(f[at+2:], ^checksum.Upper(58, f[14+8:14+40], f[at:]))
		return f
	}
	long := report6(record{toExclude, "ff0e::1", nil})
	long = slices.Concat(long[:14+40], []byte{58, 8, 1, 68}, make([]byte, 68), long[14+48:])
	binary.BigEndian.PutUint16(long[14+4:], uint16(len(long)-14-40))
	for name, f := range map[string][]byte{
		"a first fragment": again(first), "a later fragment": again(later), "a report of four bytes": short, "too many records": report4(many...),
		"a report about an endpoint": igmp(igmpReport2, addrBytes("10.1.1.1")), "a record about an endpoint": report4(record{toExclude, "10.1.1.1", nil}),
		"MLD from beyond the link": sum(global, 14+48), "long options": long, "MLD about an endpoint": mld(mldReport1, slices.Concat(make([]byte, 4), addrBytes("fd00::1"))),
		"an address of IPv4 in MLD": report6(record{toExclude, "::ffff:239.1.1.1", nil}), "no type of IGMP": igmp(0x13, addrBytes("239.1.1.1")),
		"fewer records than are counted": igmp(igmpReport3, slices.Concat([]byte{0, 0, 0, 2}, []byte{toExclude, 0, 0, 0}, addrBytes("239.1.1.1"))),
		"fewer sources than are counted": igmp(igmpReport3, slices.Concat([]byte{0, 0, 0, 1}, []byte{toExclude, 0, 0, 5}, addrBytes("239.1.1.1"))),
		"no type of MLD":                 mld(134, slices.Concat(make([]byte, 4), addrBytes("ff05::1"))),
	} {
		if m, ok := decode(f); ok {
			t.Errorf("%s is taken: %+v", name, m)
		}
	}
	most := report4(many[1:]...)
	if m, ok := decode(most); !ok || len(m.changes) != maxRecords {
		t.Errorf("%d records: %v, %d changes", maxRecords, ok, len(m.changes))
	}
	// Auxiliary data is passed over.
	aux := igmp(igmpReport3, slices.Concat([]byte{0, 0, 0, 2}, []byte{toExclude, 1, 0, 0, 239, 1, 1, 1, 9, 9, 9, 9}, []byte{toExclude, 0, 0, 0, 239, 1, 1, 2}))
	if m, ok := decode(aux); !ok || len(m.changes) != 2 || m.changes[1].group != netip.MustParseAddr("239.1.1.2") {
		t.Errorf("auxiliary data: %v %+v", ok, m)
	}
}

// TestQueriesFollowTheRFCs: what hosts look at before they answer is in the questions (RFC 3376 sections
// 4 and 4.1, RFC 3810 sections 5 and 5.1): the router's alert, how robust and how often they are.
func TestQueriesFollowTheRFCs(t *testing.T) {
	robust := []byte{2, byte(Interval / time.Second)}
	if f := query4(within)[14:]; !slices.Equal(f[20:24], []byte{0x94, 4, 0, 0}) || f[8] != 1 || !slices.Equal(f[24+8:24+10], robust) {
		t.Errorf("of IGMP: %x", f)
	}
	f := query6(within)[14:]
	alert := []byte{58, 0, 5, 2, 0, 0} // RFC 2711 section 2.1, of MLD
	if f[6] != 0 || f[7] != 1 || !slices.Equal(f[40:46], alert) || !slices.Equal(f[48+24:48+26], robust) {
		t.Errorf("of MLD: %x", f)
	}
}

// plane is a driver's part.
type plane struct {
	reports chan driver.MembershipReport
	asked   []string
	within  []time.Duration // each question is to be answered
}

func (p *plane) Reports() <-chan driver.MembershipReport { return p.reports }

func (p *plane) Send(port string, f []byte) error {
	m, ok := decode(f)
	if !ok || !m.query {
		return model.Errorf(model.ErrInvalid, "%x is no question", f)
	}
	p.asked = append(p.asked, port)
	if m.v6 {
		p.within = append(p.within, time.Duration(binary.BigEndian.Uint16(f[14+40+8+4:]))*time.Millisecond) // RFC 3810 section 5.1.3, below 32768
	} else {
		p.within = append(p.within, time.Duration(f[14+24+1])*100*time.Millisecond) // RFC 3376 section 4.1.1, below 128
	}
	return nil
}

// bed is a listener with a clock that stands still.
type bed struct {
	*Listener
	*plane
	now time.Time
	pic desired.Host
}

func newBed(t *testing.T, file string) *bed {
	t.Helper()
	b := &bed{plane: &plane{}, now: time.Unix(1000, 0)}
	b.Listener = New(Config{Plane: b.plane, Changed: func() {}, File: file, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return b.now }})
	b.pic.Networks = b.pic.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVXLAN}).Set(2, &desired.Network{ID: 2, Encap: model.EncapVLAN})
	for name, net := range map[string]model.NetworkID{"a": 1, "b": 1, "c": 2} {
		b.pic.Ports = b.pic.Ports.Set(name, &desired.Port{IfName: name, Network: net, IPv4: netip.MustParseAddr("10.1.1.2")})
	}
	b.Follow(b.pic)
	return b
}

func (b *bed) hears(port string, frame []byte) {
	b.handleFrame(driver.MembershipReport{Port: port, Frame: frame})
}

func (b *bed) members(network model.NetworkID, group string) []string {
	groups := b.Follow(b.pic)
	g, ok := groups.Get(desired.GroupKey{Network: network, Addr: netip.MustParseAddr(group)})
	if !ok {
		return nil
	}
	return g.Ports
}

func (b *bed) want(t *testing.T, network model.NetworkID, group string, ports ...string) {
	t.Helper()
	if got := b.members(network, group); !slices.Equal(got, ports) {
		t.Errorf("group %s of network %d has members %q, want %q", group, network, got, ports)
	}
}

// TestMembersComeAndGo: members come and go by what they say, by time, and with their ports;
// each on its own network.
func TestMembersComeAndGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "multicast.json")
	b := newBed(t, file)
	join := report4(record{toExclude, "239.1.1.1", nil})
	for _, port := range []string{"b", "a", "c", "nobody"} {
		b.hears(port, join)
	}
	b.hears("a", report6(record{toExclude, "ff05::1", nil}))
	b.want(t, 1, "239.1.1.1", "a", "b")
	b.want(t, 2, "239.1.1.1", "c")
	b.want(t, 1, "ff05::1", "a")
	if n, _ := b.Refused(); n != 4 {
		t.Errorf("%d memberships, with those of a port that is not there", n)
	}
	before := b.Follow(b.pic)
	b.hears("a", join)
	if after := b.Follow(b.pic); after != before {
		t.Error("a report that says nothing new makes another state")
	}
	b.hears("b", report4(record{toInclude, "239.1.1.1", nil}))
	b.want(t, 1, "239.1.1.1", "a")

	b.now = b.now.Add(Lifetime - time.Second)
	b.hears("a", join)
	b.now = b.now.Add(2 * time.Second)
	if !b.tick() {
		t.Error("nothing has changed though two memberships are over")
	}
	b.want(t, 1, "239.1.1.1", "a")
	b.want(t, 1, "ff05::1")
	b.want(t, 2, "239.1.1.1")

	again := newBed(t, file) // another process
	again.want(t, 1, "239.1.1.1", "a")
	again.now = again.now.Add(Lifetime)
	again.tick()
	again.want(t, 1, "239.1.1.1")

	b.pic.Ports = b.pic.Ports.Delete("a")
	b.want(t, 1, "239.1.1.1")
	if n, _ := b.Refused(); n != 0 {
		t.Errorf("%d memberships of a port that is gone", n)
	}
}

// TestPortsAreQueriedSoonAndRegularly: each port is queried soon, with a short response time, and again each Interval.
// Queries of the fabric on a VLAN network go to its ports; reports of others go nowhere.
func TestPortsAreQueriedSoonAndRegularly(t *testing.T) {
	b := newBed(t, filepath.Join(t.TempDir(), "multicast.json"))
	count := func(want int) {
		t.Helper()
		for _, port := range []string{"a", "b", "c"} {
			n := 0
			for _, p := range b.asked {
				if p == port {
					n++
				}
			}
			if n != want {
				t.Errorf("port %s was asked %d times, want %d", port, n, want)
			}
		}
	}
	b.tick()
	count(0)
	b.now = b.now.Add(startupQueries)
	b.tick()
	b.tick()
	count(2) // for IPv4 and for IPv6
	answered := func(want time.Duration) {
		t.Helper()
		if len(b.within) == 0 || slices.ContainsFunc(b.within, func(d time.Duration) bool { return d != want }) {
			t.Errorf("questions are to be answered within %v, want %v", b.within, want)
		}
		b.within = nil
	}
	answered(changeDelay)
	b.now = b.now.Add(Interval)
	b.tick()
	count(4)
	answered(within)
	b.asked = nil
	for network := range model.NetworkID(3) {
		b.handleFrame(driver.MembershipReport{Network: network, Frame: query4(within)})
		b.handleFrame(driver.MembershipReport{Network: network, Frame: report4(record{toExclude, "239.1.1.1", nil})})
	}
	if !slices.Equal(b.asked, []string{"c"}) {
		t.Errorf("the fabric's questions went to %q, want to c", b.asked)
	}
	b.want(t, 2, "239.1.1.1")
}

// TestReusedPortLosesItsMemberships: a port that gets another endpoint or another network under the same name
// loses its memberships and is queried again, also over a restart. A port without IPv4 is
// queried for IPv6 alone.
func TestReusedPortLosesItsMemberships(t *testing.T) {
	file := filepath.Join(t.TempDir(), "multicast.json")
	b := newBed(t, file)
	anew := func(change func(*desired.Port)) {
		t.Helper()
		b.now = b.now.Add(Interval)
		b.tick()
		b.asked, b.within = nil, nil
		b.hears("a", report4(record{toExclude, "239.1.1.1", nil}))
		b.want(t, 1, "239.1.1.1", "a")
		b.tick()
		p, _ := b.pic.Ports.Get("a")
		next := *p
		change(&next)
		b.pic.Ports = b.pic.Ports.Set("a", &next)
		b.want(t, next.Network, "239.1.1.1")
		b.tick()
		again := newBed(t, file)
		again.want(t, 1, "239.1.1.1")
		b.now = b.now.Add(startupQueries)
		b.tick()
		for i, d := range b.within {
			if b.asked[i] == "a" && d != changeDelay {
				t.Errorf("it is asked to answer within %v", d)
			}
		}
	}
	asked := func(want int) {
		t.Helper()
		n := 0
		for _, p := range b.asked {
			if p == "a" {
				n++
			}
		}
		if n != want {
			t.Errorf("it was asked %d times, want %d", n, want)
		}
	}
	anew(func(p *desired.Port) { p.Endpoint.ID = "another" })
	asked(2)
	anew(func(p *desired.Port) { p.Endpoint.ID, p.IPv4 = "without IPv4", netip.Addr{} })
	asked(1)
	anew(func(p *desired.Port) { p.Network = 2 })
	asked(1)
}

// TestEndpointsHaveAShareOfGroups: an endpoint has its share, and the host an end.
func TestEndpointsHaveAShareOfGroups(t *testing.T) {
	b := newBed(t, filepath.Join(t.TempDir(), "multicast.json"))
	group := func(i int) string { return netip.AddrFrom4([4]byte{239, 1, byte(i >> 8), byte(i)}).String() }
	for i := range MaxGroups + 10 {
		b.hears("a", report4(record{toExclude, group(i), nil}))
	}
	b.hears("b", report4(record{toExclude, group(MaxGroups + 1), nil}))
	if n, refused := b.Refused(); n != MaxGroups+1 || refused != 10 {
		t.Errorf("%d memberships and %d refused, want %d and 10", n, refused, MaxGroups+1)
	}
	b.want(t, 1, group(MaxGroups-1), "a")
	b.want(t, 1, group(MaxGroups))
	b.want(t, 1, group(MaxGroups+1), "b")
	tab := table{ports: map[string]map[netip.Addr]time.Time{}, n: MaxMembers}
	if tab.handleReport("x", message{changes: []change{{netip.MustParseAddr("239.1.1.1"), true}}}, b.now) || tab.refused != 1 {
		t.Error("a host has no end of memberships")
	}
}

// FuzzDecode: whatever a container sends, reading it ends, and what it says is groups.
func FuzzDecode(f *testing.F) {
	f.Add(report4(record{toExclude, "239.1.1.1", []string{"10.1.1.3"}}))
	f.Add(report6(record{toExclude, "ff05::1", nil}))
	f.Add(igmp(igmpLeave2, addrBytes("239.1.1.1")))
	f.Add(query6(within))
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := decode(frame)
		if m2, again := decode(slices.Concat(frame, []byte{0})); ok && (!again || len(m2.changes) != len(m.changes)) {
			t.Errorf("padding changes what %x says", frame)
		}
		for _, c := range m.changes {
			if ok && !c.group.IsMulticast() {
				t.Errorf("%x is about %v", frame, c.group)
			}
		}
	})
}
