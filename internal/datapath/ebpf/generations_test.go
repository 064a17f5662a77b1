package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The bytes of entries of the fast path, which have the time that they live until at the same
// offset.
const (
	pathBytes, passBytes, servedBytes = 128, 64, 192
	liveUntil                         = 16
)

// placesOf are the maps of the fast path, with the bytes of their entries.
func placesOf(o *objects) map[*ebpf.Map]int {
	return map[*ebpf.Map]int{o.ForwardCache: pathBytes, o.VerdictCache: passBytes, o.NatCache: servedBytes}
}

// keepShortWays makes the entries of the fast path last, and counts the connections that have
// some.
func (r *rig) keepShortWays(t testing.TB) (n int) {
	t.Helper()
	for m, size := range placesOf(r.drv.dp.obj) {
		for i, set := range takenPlaces(t, m) {
			for way := range slices.Chunk(set, size) {
				if bytes.Equal(way, make([]byte, size)) {
					continue
				}
				at := binary.NativeEndian.Uint64(way[liveUntil:])
				if at == 0 { // forgotten
					continue
				}
				if m != r.drv.dp.obj.ForwardCache {
					n++
				}
				binary.NativeEndian.PutUint64(way[liveUntil:], at+1<<40)
			}
			if err := m.Put(i, set); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// takenPlaces returns the sets of places that are not empty.
func takenPlaces(t testing.TB, m *ebpf.Map) map[uint32][]byte {
	t.Helper()
	out := map[uint32][]byte{}
	empty := make([]byte, m.ValueSize())
	var c ebpf.MapBatchCursor
	keys := make([]uint32, 4096)
	values := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(len(empty), reflect.TypeFor[byte]())), len(keys), len(keys))
	for {
		n, err := m.BatchLookup(&c, keys, values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
		for i := range n {
			if v := values.Index(i).Bytes(); !bytes.Equal(v, empty) {
				out[keys[i]] = bytes.Clone(v)
			}
		}
		if err != nil {
			return out
		}
	}
}

// TestEndpointChangeRejudgesItsConnectionsOnly: an event of one endpoint leaves others' connections in the
// fast path, and has its own ones judged again at once; a change of policy does so with
// all.
func TestEndpointChangeRejudgesItsConnectionsOnly(t *testing.T) {
	c := newCrowded(t, nil)
	apply := func(pic desired.Host) {
		t.Helper()
		c.pic = pic
		if rep, err := (inHost{c.drv, c.rig}).Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
	}
	far := &desired.Remote{Network: 1, MAC: [6]byte{2, 5, 0, 0, 0, 77}, IPv4: netip.MustParseAddr("10.9.0.77"), Identity: 300, VTEP: vtep2}
	port := uint16(10000)
	// stays reports whether answers from b to a still take the fast path: the
	// connection itself is gone, and b begins none.
	stays := func(event func(pic desired.Host) desired.Host) bool {
		t.Helper()
		port += 10
		c.connect("a's", c.a, port, 1)
		answer := c.segments(c.a, port, 1, reference.FlagACK, true)
		c.all("an answer", c.b, answer)
		if c.keepShortWays(t) == 0 {
			t.Fatal("nothing takes the fast path")
		}
		c.drv.mu.Lock()
		err := c.drv.dp.conns.sweep(func(connKey, conn) bool { return true })
		c.drv.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		c.all("an answer on the fast path", c.b, answer)
		apply(event(c.pic))
		return c.pass(c.b, answer) == 1
	}
	for _, x := range []struct {
		what  string
		stays bool
		event func(pic desired.Host) desired.Host
	}{
		{"nothing", true, func(pic desired.Host) desired.Host { return pic }},
		{"another host's endpoint comes", true, func(pic desired.Host) desired.Host {
			pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: 1, MAC: far.MAC}, far)
			return pic
		}},
		{"it goes", true, func(pic desired.Host) desired.Host {
			pic.Remotes = pic.Remotes.Delete(desired.RemoteKey{Network: 1, MAC: far.MAC})
			return pic
		}},
		{"a neighbour's identity changes", true, func(pic desired.Host) desired.Host {
			other := *c.c
			other.Identity++
			pic.Ports = pic.Ports.Set(other.IfName, &other)
			return pic
		}},
		{"a neighbour gets a new policy", true, func(pic desired.Host) desired.Host {
			other := *c.c
			other.Policies = 7
			pic.Ports = pic.Ports.Set(other.IfName, &other)
			pic.PolicySets = pic.PolicySets.Set(7, &desired.PolicySet{ID: 7, In: []desired.Tier{{Default: model.Deny}}})
			return pic
		}},
		{"a neighbour's policy changes", true, func(pic desired.Host) desired.Host {
			pic.PolicySets = pic.PolicySets.Set(7, &desired.PolicySet{ID: 7, In: []desired.Tier{{Default: model.Allow}}})
			return pic
		}},
		{"it names an identity that nobody had", true, func(pic desired.Host) desired.Host {
			pic.PolicySets = pic.PolicySets.Set(7, &desired.PolicySet{ID: 7, In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(
				desired.Rule{ID: "named", Priority: 1, Action: model.Allow, Identities: desired.IdentitiesOf(999)},
			)}}})
			return pic
		}},
		{"the rules of one end's policy log, and a policy is audited", true, audited},
		{"a neighbour goes", true, func(pic desired.Host) desired.Host {
			pic.Ports = pic.Ports.Delete(c.c.IfName)
			return pic
		}},
		{"the identity of one end changes", false, func(pic desired.Host) desired.Host {
			end := *c.a
			end.Identity++
			pic.Ports = pic.Ports.Set(end.IfName, &end)
			return pic
		}},
		{"that of the other end", false, func(pic desired.Host) desired.Host {
			end := *c.b
			end.Identity++
			pic.Ports = pic.Ports.Set(end.IfName, &end)
			return pic
		}},
		{"one end's policy changes", false, func(pic desired.Host) desired.Host {
			pic.PolicySets = pic.PolicySets.Set(1, &desired.PolicySet{ID: 1, Name: "other", In: []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(
				desired.Rule{ID: "dns", Priority: 1, Action: model.Allow, AnyPeer: true, Ports: []model.PortMatch{{Protocol: model.ProtoUDP, Lo: 53, Hi: 53}}},
			)}}})
			return pic
		}},
	} {
		if got := stays(x.event); got != x.stays {
			t.Errorf("%s: the connection stays on the fast path: %v, want %v", x.what, got, x.stays)
		}
	}
}

// TestConnectionsOfAFormerEndpointAreRemoved: the next count removes the connections of an address's former
// endpoint, and no others.
func TestConnectionsOfAFormerEndpointAreRemoved(t *testing.T) {
	c := newCrowded(t, nil)
	c.connect("c's", c.c, 10000, 3)
	c.connect("a's", c.a, 10000, 2)
	pic := c.pic
	pic.Ports = pic.Ports.Delete(c.c.IfName)
	if _, err := (inHost{c.drv, c.rig}).Apply(t.Context(), pic); err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		_ = eachEntry("conns", c.drv.dp.obj.Conns, 1, func(connKey, conn) { n++ })
		return n
	}
	if n := count(); n != 5 {
		t.Errorf("%d connections after an endpoint went; the event itself takes out none of 5", n)
	}
	c.tables()
	if n := count(); n != 2 {
		t.Errorf("%d connections are left after a count, want a's 2", n)
	}
}

// TestProgramsAndDriverIndexGenerationsAlike: programs and driver agree where an address' changes are counted.
func TestProgramsAndDriverIndexGenerationsAlike(t *testing.T) {
	c := newCrowded(t, nil)
	c.connect("a's", c.a, 10000, 1)
	var found conn
	_ = eachEntry("conns", c.drv.dp.obj.Conns, 1, func(_ connKey, v conn) { found = v })
	want := c.drv.dp.settings.get().Epoch
	for _, p := range []*desired.Port{c.a, c.b} {
		var n uint32
		if err := c.drv.dp.endpoints.generations.m.Lookup(generationIndex(domainAddr{1, toAddr(p.IPv4)}), &n); err != nil || n == 0 {
			t.Fatalf("%s has %d turns after it came (%v)", p.IPv4, n, err)
		}
		want += n
	}
	if found.Version != want {
		t.Errorf("the verdict's version is %d, the driver's %d", found.Version, want)
	}
}

// TestRestartJudgesConnectionsAgain: who died may have changed a policy, and not begun the
// epoch that follows.
func TestRestartJudgesConnectionsAgain(t *testing.T) {
	c := newCrowded(t, nil)
	before := c.drv.dp.settings.get().Epoch
	if err := c.drv.Close(); err != nil {
		t.Fatal(err)
	}
	drv := c.open(t)
	t.Cleanup(func() { _ = drv.Close() })
	for range 2 { // once
		if rep, err := drv.Apply(t.Context(), c.pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		if now := c.drv.dp.settings.get().Epoch; now != before+1 {
			t.Errorf("epoch %d, want %d", now, before+1)
		}
	}
}
