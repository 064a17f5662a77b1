package ebpf

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// asking are clients outside of an exposed service with four backends, and an affinity
// that is shorter than the machine has run, so that there are times before that.
type asking struct {
	*rig
	t    *testing.T
	drv  driver.Driver
	pic  desired.Host
	s    desired.Service
	vip  netip.Addr
	port uint16 // by which they asked last
}

func newAsking(t *testing.T, sizes map[string]uint32) *asking {
	t.Helper()
	r := newRig(t)
	r.sizes = sizes
	c := &asking{rig: r, t: t, drv: r.open(t), port: 20000}
	t.Cleanup(func() { _ = c.drv.Close() })
	_, pic, vips, _ := r.served(t)
	pic.HostNAT = desired.NewHostNAT(netip.MustParsePrefix("172.19.0.0/16"))
	up, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	c.pic, c.s = exposedTo(pic, "asked", time.Duration(up/2).Truncate(time.Second), 4)
	c.vip = vips[0]
	c.with("", desired.BackendActive)
	return c
}

// with has the service as it is but for the state of a backend.
func (c *asking) with(id model.EndpointID, state desired.BackendState) {
	c.t.Helper()
	s, pic := c.s, c.pic
	for key, b := range c.s.Backends.All() {
		if key.ID == id {
			now := *b
			now.State = state
			s.Backends = s.Backends.Set(key, &now)
		}
	}
	pic.Services = pic.Services.Set(s.Key, &s)
	if rep, err := c.drv.Apply(c.t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		c.t.Fatal(err, conformance.Failed(rep))
	}
}

// ask has clients ask by a port that they have not asked by, and returns who got them.
func (c *asking) ask(clients ...netip.Addr) map[netip.Addr]model.EndpointID {
	c.t.Helper()
	c.port++
	var frames [][]byte
	for _, a := range clients {
		frames = append(frames, asksOutside(a, c.vip, c.port))
	}
	for i, ret := range c.fromHost(c.t, frames...) {
		if ret != redirected {
			c.t.Fatalf("%s: verdict %d", clients[i], ret)
		}
	}
	name := map[uint64]model.EndpointID{}
	for key := range c.s.Backends.All() {
		name[desired.BackendID(key)] = key.ID
	}
	got := map[netip.Addr]model.EndpointID{}
	if err := eachEntry("translations", c.rig.drv.dp.obj.Translations, 1, func(k connKey, v translation) {
		if k.Pad == clientSideExternal && k.LoPort == c.port {
			got[k.Lo.netip()] = name[v.ID]
		}
	}); err != nil {
		c.t.Fatal(err)
	}
	if len(got) != len(clients) {
		c.t.Fatalf("%d of %d clients have a backend", len(got), len(clients))
	}
	return got
}

// known are the remembered clients, and their entries.
func (c *asking) known() map[netip.Addr]affine {
	c.t.Helper()
	out := map[netip.Addr]affine{}
	if err := eachEntry("affines", c.rig.drv.dp.obj.Affines, 1, func(k affineKey, v affine) { out[k.Client.netip()] = v }); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// TestAffinityIsBounded: of more clients than a service's affinity remembers, the first
// are remembered and stay where they were sent while their backend took nothing; all
// others have a backend as well, the one that their address chooses, each time. Clients
// whose time is over make room.
func TestAffinityIsBounded(t *testing.T) {
	const beyond = 400
	c := newAsking(t, map[string]uint32{"halfopen": 65536})
	var all []netip.Addr
	for i := range desired.MaxAffine + beyond {
		all = append(all, netip.AddrFrom4([4]byte{203, 10, byte(i >> 8), byte(i)}))
	}
	first := c.ask(all...)
	known := c.known()
	for i, a := range all {
		if _, is := known[a]; is != (i < desired.MaxAffine) {
			t.Fatalf("client %d is remembered: %v, of %d", i, is, len(known))
		}
	}
	some := slices.Concat(all[:beyond], all[desired.MaxAffine:]) // half of them are remembered
	for a, id := range c.ask(some...) {
		if id != first[a] {
			t.Errorf("%s asked %s first, then %s", a, first[a], id)
		}
	}
	c.with("b0", desired.BackendDraining)
	moved := c.ask(some...)
	c.with("b0", desired.BackendActive)
	stayed, back := 0, 0
	for a, id := range c.ask(some...) {
		_, is := known[a]
		switch {
		case moved[a] == "b0":
			t.Errorf("%s has asked a backend that takes nothing", a)
		case is && id != moved[a]:
			t.Errorf("%s, that is remembered, asks %s after %s", a, id, moved[a])
		case !is && id != first[a]:
			t.Errorf("%s, that is not remembered, asks %s, its address chooses %s", a, id, first[a])
		case is && first[a] == "b0":
			stayed++
		case first[a] == "b0":
			back++
		}
	}
	if stayed == 0 || back == 0 || len(c.known()) != desired.MaxAffine {
		t.Errorf("%d clients that are remembered had to leave, %d others; %d are remembered", stayed, back, len(c.known()))
	}
	now, err := monotonic()
	if err == nil {
		err = c.rig.drv.sweepAffinities(now + uint64(c.s.Affinity))
	}
	if err != nil || len(c.known()) != 0 {
		t.Fatalf("%d are remembered when all times are over, %v", len(c.known()), err)
	}
	c.ask(all[desired.MaxAffine])
	if _, is := c.known()[all[desired.MaxAffine]]; !is {
		t.Error("there is no room for a client though all others' time is over")
	}
}

// TestClientLosesItsBackendAfterTheAffinityTimeout: a client is remembered for the service's affinity timeout after its
// last new connection, and not until its entry is swept; then a backend is chosen again.
func TestClientLosesItsBackendAfterTheAffinityTimeout(t *testing.T) {
	c := newAsking(t, nil)
	client := netip.MustParseAddr("203.0.113.7")
	own := c.ask(client)[client]
	c.with(own, desired.BackendDraining)
	other := c.ask(client)[client]
	c.with(own, desired.BackendActive)
	whole := uint64(c.s.Affinity)
	margin := whole / 2
	const lag = uint64(time.Second)    // the programs' clock is coarse
	asked := func(ago uint64) uint64 { // so long ago
		t.Helper()
		now, err := monotonic()
		if err != nil {
			t.Fatal(err)
		}
		v := c.known()[client]
		v.Last = now - ago
		if err := c.rig.drv.dp.obj.Affines.Put(affineKey{c.s.Seed(), toAddr(client)}, v); err != nil {
			t.Fatal(err)
		}
		return now
	}
	now := asked(whole - margin)
	if got := c.ask(client)[client]; got != other {
		t.Errorf("before its time is over it asks %s, want %s as before", got, other)
	}
	if last := c.known()[client].Last; last+margin < now {
		t.Errorf("a new connection does not begin its time anew: it is %v old", time.Duration(now-last))
	}
	now = asked(whole - margin)
	if err := c.rig.drv.sweepAffinities(now); err != nil || len(c.known()) != 1 {
		t.Errorf("before its time is over, %d are remembered, %v", len(c.known()), err)
	}
	anew := map[model.EndpointID]bool{}
	for range 20 { // by chance the same one of four: once in 10^11
		asked(whole + lag)
		anew[c.ask(client)[client]] = true
	}
	if len(anew) < 2 {
		t.Errorf("whenever its time is over it asks %v", anew)
	}
	now = asked(whole + lag)
	if err := c.rig.drv.sweepAffinities(now); err != nil || len(c.known()) != 0 {
		t.Errorf("when its time is over, %d are remembered, %v", len(c.known()), err)
	}
}

// TestFullAffinityTableIsReported: when more clients ask than the table has room for, all of
// them have a backend, and the table says that it is full, with each client that lost its
// entry. The log says so once. Netmaster's condition table-fills is of the same figures.
func TestFullAffinityTableIsReported(t *testing.T) {
	const room, clients = 2048, 5000
	c := newAsking(t, map[string]uint32{"affines": room, "halfopen": 65536})
	now, err := monotonic()
	if err == nil {
		err = c.rig.drv.sweepAffinities(now)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Addr
	for i := range clients {
		all = append(all, netip.AddrFrom4([4]byte{203, 10, byte(i >> 8), byte(i)}))
	}
	c.ask(all[:room/4]...)
	if err := c.rig.drv.sweepAffinities(now); err != nil {
		t.Fatal(err)
	}
	if got := c.rig.drv.Tables()["affines"]; got.Quiet || !got.Evicts || got.Capacity != room || got.Entries != room/4 || got.Evicted != 0 {
		t.Errorf("a quarter full: %+v", got)
	}
	c.ask(all[room/4:]...)
	var log bytes.Buffer
	f := &c.rig.drv.dp.services.affinities.lru.fill
	for range 2 { // the second time there is nothing new to tell
		if err := c.rig.drv.sweepAffinities(now); err != nil {
			t.Fatal(err)
		}
		f.warn(slog.New(slog.NewTextHandler(&log, nil)), time.Now().Add(2*warnEvery))
	}
	got := c.rig.drv.Tables()["affines"]
	if got.Entries < room*8/10 || got.Entries != uint64(len(c.known())) || got.Entries+got.Evicted != clients {
		t.Errorf("full: %+v, of %d clients %d are known", got, clients, len(c.known()))
	}
	if n := strings.Count(log.String(), "map=affines "); n != 1 {
		t.Errorf("the log tells %d times of evictions, want once:\n%s", n, log.String())
	}
}
