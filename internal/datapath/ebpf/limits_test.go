package ebpf

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestFullMapsRefuseByName gives one map after the other room for one entry: what does not
// fit is refused by name, with the size and the flag to change it, everything
// else works, and it fits once there is room; connections outlast every change.
func TestFullMapsRefuseByName(t *testing.T) {
	r := newRig(t)
	_, big := conformance.DesiredStates(t)
	set, _ := big.PolicySets.Get(anyPort(big, func(p *desired.Port) bool { return p.Policies != 0 }).Policies)
	tight := *set
	tight.In = append([]desired.Tier{{Default: model.Pass, Rules: desired.RulesOf(desired.Rule{
		ID: "nets", Priority: 1, Action: model.Allow,
		CIDRs: []desired.CIDR{{Prefix: netip.MustParsePrefix("10.7.0.0/16")}, {Prefix: netip.MustParsePrefix("10.8.0.0/16")}},
	})}}, set.In...)
	big.PolicySets = big.PolicySets.Set(set.ID, &tight)
	big.PolicySets = big.PolicySets.Set(set.ID+1, &desired.PolicySet{ID: set.ID + 1, In: []desired.Tier{{Default: model.Deny}}})
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	kept := connKey{Domain: 1, Proto: 6, LoPort: 1, HiPort: 2}
	drv := r.open(t)
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"ports", "tags", "networks", "stations", "hosts", "members", "sets", "rules", ""}
	for _, name := range names { // what was small the last time has room again
		if _, err := drv.Apply(t.Context(), desired.Host{}); err != nil { // or the size would be refused
			t.Fatal(err)
		}
		if err := r.drv.dp.obj.Conns.Put(kept, conn{Seen: now}); err != nil {
			t.Fatal(err)
		}
		if err := drv.Close(); err != nil {
			t.Fatal(err)
		}
		r.sizes = map[string]uint32{"conns": 1024}
		if name != "" {
			r.sizes[name] = 1
		}
		drv = r.open(t)
		rep, err := drv.Apply(t.Context(), big)
		if err != nil {
			t.Errorf("%s: Apply() = %v", name, err)
		}
		said, worked := 0, 0
		judge := func(object string, err error) {
			switch {
			case errors.Is(err, model.ErrExhausted) && strings.Contains(err.Error(), "--ebpf-map-sizes "+name+"=N"):
				said++
			case name != "networks" && name != "tags": // without which there are no ports and remotes
				t.Errorf("%s: %s: %v", name, object, err)
			}
		}
		for _, p := range rep.Problems {
			judge(p.Object, p.Err)
		}
		for ifname, p := range rep.Ports.All() {
			if p.Err == nil {
				worked++
			} else {
				judge(ifname, p.Err)
			}
		}
		if (said == 0) != (name == "") {
			t.Errorf("%s: %d objects say that the map is full: %+v", name, said, rep)
		}
		if worked == 0 && name != "hosts" && name != "stations" { // which other hosts' endpoints fill first
			t.Errorf("%s: no port works any more: %+v", name, rep.Ports)
		}
		if again, err := drv.Apply(t.Context(), big); err != nil || len(again.Problems) != len(rep.Problems) {
			t.Errorf("%s: Apply() again = %v, %d problems; want %d", name, err, len(again.Problems), len(rep.Problems))
		}
		if err := r.drv.dp.obj.Conns.Lookup(kept, &conn{}); err != nil {
			t.Errorf("%s: the connection is gone: %v", name, err)
		}
	}
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullMapOfExposedServicesIsReported: what clients outside do not reach, as the map has no room, is
// named each time, and all else is applied.
func TestFullMapOfExposedServicesIsReported(t *testing.T) {
	r := newRig(t)
	r.sizes = map[string]uint32{"exposed": 3}
	drv := r.open(t)
	pic := desired.Host{VTEP: vtep1}
	for i, id := range []model.NetworkID{7, 8} { // of two domains, with an address for each and one that they share
		n := &desired.Network{ID: id, Encap: model.EncapVXLAN, Tag: uint32(id), Subnet: netip.MustParsePrefix("10.9.0.0/24")}
		pic.Networks = pic.Networks.Set(id, n)
		s := &desired.Service{Key: model.ServiceKey{Tenant: "default", Name: []string{"one", "two"}[i]}, Network: id, Exposed: true}
		for _, last := range []byte{1, byte(id)} {
			s.Frontends = append(s.Frontends, desired.Frontend{Addr: netip.AddrFrom4([4]byte{203, 0, 113, last}), Protocol: model.ProtoTCP, Port: 80 + uint16(i), Backend: 8080})
		}
		pic.Services = pic.Services.Set(s.Key, s)
	}
	for range 2 {
		rep, err := drv.Apply(t.Context(), pic)
		if err != nil || len(rep.Problems) != 2 || !errors.Is(rep.Problems[0].Err, model.ErrExhausted) || !strings.Contains(rep.Problems[0].Err.Error(), "exposed=N") {
			t.Errorf("Apply() = %v, problems %v, want two of the map", err, rep.Problems)
		}
		if n := r.drv.Tables()["service_ports"].Entries; n != 4 {
			t.Errorf("%d ports of services are there, want all 4", n)
		}
	}
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTooLargeSetIsComputedOnce: a set that does not fit is computed once, whatever else changes and
// however often the whole is compared meanwhile. It is reported all the time, and applied
// when another one leaves, or when it changes.
func TestTooLargeSetIsComputedOnce(t *testing.T) {
	r := newRig(t)
	r.sizes = map[string]uint32{"rules": 64}
	drv := r.open(t)
	allow := func(n int) []desired.Tier {
		rule := desired.Rule{ID: "nets", Priority: 1, Action: model.Allow}
		for i := range n {
			rule.CIDRs = append(rule.CIDRs, desired.CIDR{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 7, byte(i), 0}), 24)})
		}
		return []desired.Tier{{Default: model.Deny, Rules: desired.RulesOf(rule)}}
	}
	var pic desired.Host
	set := func(id desired.PolicySetID, rules int) {
		pic.PolicySets = pic.PolicySets.Set(id, &desired.PolicySet{ID: id, In: allow(rules)})
	}
	apply := func(when string, refused, tried int) {
		t.Helper()
		before := r.drv.dp.policies.instance
		rep, err := drv.Apply(t.Context(), pic)
		if err != nil || len(rep.Problems) != refused || refused > 0 && !errors.Is(rep.Problems[0].Err, model.ErrExhausted) {
			t.Errorf("%s: Apply() = %v, %v; want %d problems", when, rep.Problems, err, refused)
		}
		if n := int(r.drv.dp.policies.instance - before); n != tried {
			t.Errorf("%s: %d sets were worked out, want %d", when, n, tried)
		}
	}
	set(1, 40)
	apply("one", 0, 1)
	set(2, 50)
	apply("another one", 1, 1)
	apply("nothing else", 1, 0)
	set(3, 5)
	apply("a third", 1, 1)
	set(2, 60)
	apply("another one changes", 1, 1)
	pic.PolicySets = pic.PolicySets.Delete(1)
	apply("the first leaves", 1, 0) // while packets may be looking it up
	for len(r.drv.dp.policies.stale) > 0 {
		r.drv.dp.policies.purgeStale(time.Now())
	}
	set(4, 1)
	apply("one leaves that is not enough", 1, 1)
	pic.PolicySets = pic.PolicySets.Delete(3).Delete(4)
	apply("all others leave", 1, 0)
	apply("there is room", 0, 1)
	if err := drv.Close(); err != nil {
		t.Fatal(err)
	}
}

func anyPort(pic desired.Host, fn func(*desired.Port) bool) *desired.Port {
	for _, p := range pic.Ports.All() {
		if fn(p) {
			return p
		}
	}
	return nil
}

// TestSizesAreChecked: unknown maps and absurd sizes are refused.
func TestSizesAreChecked(t *testing.T) {
	for _, sizes := range []map[string]uint32{{"nosuch": 5}, {"settings": 2}, {"conns": 0}, {"conns": maxEntries + 1}} {
		if err := CheckSizes(sizes); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("CheckSizes(%v) = %v, want kind %v", sizes, err, model.ErrInvalid)
		}
	}
	if err := CheckSizes(map[string]uint32{"conns": 1, "frags": maxEntries}); err != nil {
		t.Error(err)
	}
}

// TestEvictionsAreReported fills the maps that evict: every entry that was made is
// there, deleted, or counted as evicted; the log says so once; new connections
// go on being let through.
func TestEvictionsAreReported(t *testing.T) {
	r := newRig(t)
	const room, flood = 256, 3000
	r.sizes = map[string]uint32{"halfopen": room, "frags": room, "hits": 16}
	var log bytes.Buffer
	r.log = &log
	pic, a, b := r.neighbours(t)
	drv := r.open(t)
	defer drv.Close()
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	r.takeTallies(t, ruleTally{ID: 1, Seen: 1 << 62}) // or few rules would need the map hits
	var frames [][]byte
	for i := range flood {
		p := web(a, b, uint16(10_000+i), 8000+uint16(i%80))
		p.Frag = &reference.Fragment{ID: uint32(i), More: true}
		frames = append(frames, conformance.Frame(p))
	}
	for i, ret := range r.from(t, a.IfName, frames...) {
		if ret != redirected {
			t.Fatalf("connection %d: verdict %d, want %d", i, ret, redirected)
		}
	}
	now, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing new to tell
		if err := r.drv.countTables(now); err != nil {
			t.Fatal(err)
		}
		for _, f := range r.drv.dp.fills() {
			f.at = f.at.Add(-warnEvery)
			f.warn(r.drv.cfg.Log, f.at.Add(2*warnEvery))
		}
	}
	before := r.drv.Tables()
	for name, want := range map[string]uint64{"halfopen": flood, "frags": flood} {
		got := before[name]
		if got.Entries+got.Evicted != want || got.Evicted < want-room || got.Capacity != room {
			t.Errorf("%s: %+v; want %d entries or evictions in all, room for %d", name, got, want, room)
		}
		if n := strings.Count(log.String(), "map="+name+" "); n != 1 {
			t.Errorf("%s: the log tells %d times of evictions, want once:\n%s", name, n, log.String())
		}
	}
	if got := before["hits"]; got.Evicted == 0 || got.Capacity != 16 {
		t.Errorf("hits: %+v, want evictions from 16", got)
	}
	// What was deleted was not evicted.
	if err := r.drv.countTables(now + uint64(fragLife) + 1e9); err != nil {
		t.Fatal(err)
	}
	if got := r.drv.Tables()["frags"]; got.Entries != 0 || got.Evicted != before["frags"].Evicted {
		t.Errorf("frags after their time: %+v, before %+v", got, before["frags"])
	}
}

// TestTooSmallMapSizeIsRefused: a size that what is programmed does not fit into is refused,
// and nothing is lost; one that packets alone fill may shrink.
func TestTooSmallMapSizeIsRefused(t *testing.T) {
	r := newRig(t)
	pic, a, b := r.neighbours(t)
	port := uint16(10_000)
	works := func(sizes map[string]uint32) {
		t.Helper()
		r.sizes = sizes
		drv := r.open(t)
		defer drv.Close()
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		port++
		for _, ret := range r.from(t, a.IfName, conformance.Frame(web(a, b, port, 80))) {
			if ret != redirected {
				t.Errorf("sizes %v: verdict %d, want %d", sizes, ret, redirected)
			}
		}
	}
	works(nil)
	for _, name := range []string{"ports", "stations", "hosts"} {
		r.sizes = map[string]uint32{name: 1}
		var err error
		r.thread.do(func() {
			var d *Driver
			if d, err = open(t.Context(), r.config(t)); err == nil {
				err = errors.Join(errors.New("it opens"), d.Close())
			}
		})
		if !errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), "--ebpf-map-sizes "+name+"=N with N of at least ") {
			t.Errorf("%s=1: %v", name, err)
		}
	}
	works(nil)
	works(map[string]uint32{"conns": 1, "halfopen": 1})
}

// TestCountersSurviveOtherMapSizes: what is counted is there after a start with maps of
// other sizes.
func TestCountersSurviveOtherMapSizes(t *testing.T) {
	r := newRig(t)
	pic, a, b := r.neighbours(t)
	want := uint64(0)
	for _, sizes := range []map[string]uint32{nil, {"hits": 64, "ports": 16}, {"hits": 128, "ports": 64}} {
		r.sizes = sizes
		drv := r.open(t)
		if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		r.takeTallies(t, ruleTally{ID: 1, Seen: 1 << 62}) // so that the rule counts in the map hits
		for _, ret := range r.from(t, a.IfName, conformance.Frame(web(a, b, uint16(10_000+want), 80))) {
			if ret != redirected {
				t.Fatalf("verdict %d, want %d", ret, redirected)
			}
		}
		want++
		s, err := drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if rule, tx, rx := s.Rules["web"].Packets, s.Ports[a.IfName].TxPackets, s.Ports[b.IfName].RxPackets; rule != want || tx != want || rx != want {
			t.Errorf("sizes %v: the rule counts %d packets, the ports %d and %d; want %d", sizes, rule, tx, rx, want)
		}
		if err := drv.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
