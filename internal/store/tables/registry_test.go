package tables

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

var cmpAddrs = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
}

// sample is one row of a table, as an event and as what Decode must say of it.
type sample struct {
	of   registered
	ev   store.Event
	want Change
}

func row[K comparable, V any](t testing.TB, tab *Table[K, V], v V) sample {
	t.Helper()
	b, err := store.EncodeRecord(tab.spec.Version, v)
	if err != nil {
		t.Fatal(err)
	}
	k := tab.spec.KeyOf(v)
	return sample{
		tab,
		store.Event{KV: store.KV{Key: tab.Key(k), Value: b, Create: 3, Mod: 5}},
		Change{Key: k, Value: v, Create: 3, Mod: 5},
	}
}

// filled makes a sample of a table whose rows are a kind of object, with a text in
// each of the row's fields that are texts.
func (t *Table[K, V]) filled(tt testing.TB) sample {
	tt.Helper()
	var v V
	fill(reflect.ValueOf(&v).Elem())
	return row(tt, t, v)
}

func fill(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // others stay zero
	case reflect.String:
		v.SetString("a.b")
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

// samples are those below, and one of each kind of object that has none there.
func samples(t testing.TB) []sample {
	t.Helper()
	all := chosen(t)
	for _, table := range registry {
		f, ok := table.(interface{ filled(t testing.TB) sample })
		if ok && len(table.kinds()) > 0 && !slices.ContainsFunc(all, func(s sample) bool { return s.of == table }) {
			all = append(all, f.filled(t))
		}
	}
	return all
}

func chosen(t testing.TB) []sample {
	t.Helper()
	net := model.NetworkKey{Tenant: "a.b", Name: "n-1"}
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	return []sample{
		row(t, AciFabrics, AciFabric{Kept: true, Told: []string{"a.b:x"}, Trouble: "t", Problems: []AciProblem{{Object: "o", Text: "x"}}}),
		row(t, Checks, Checked{Asserted: true}),
		row(t, Globals, model.DefaultGlobal()),
		row(t, Tenants, model.Tenant{Name: "a.b"}),
		row(t, Namespaces, model.Namespace{Name: "kube-system", Labels: map[string]string{"team": "a"}}),
		row(t, Hosts, model.Host{Name: "h1", VTEP: addr("10.0.0.1")}),
		row(t, Networks, model.Network{Key: net, Subnet: prefix("10.1.1.0/24")}),
		row(t, Groups, model.Group{Key: model.GroupKey{Tenant: "a.b", Name: "web"}, Network: "n-1"}),
		row(t, Policies, model.ContivPolicy{Key: model.PolicyKey{Tenant: "a.b", Name: "p1"}}.General()),
		row(t, Rules, model.Rule{Key: model.RuleKey{Tenant: "a.b", Policy: "p1", Rule: "1"}, Addr: prefix("10.0.0.0/8")}.General()),
		row(t, Endpoints, model.Endpoint{Key: model.EndpointKey{Network: net, ID: "c:1"}, IPv6: addr("2001:db8::1")}),
		row(t, Identities, model.IdentityRecord{ID: 256, Network: net, Group: "web"}),
		row(t, Addresses, Address{AddressKey: AddressKey{net, addr("10.1.1.2")}, Endpoint: "c:1"}),
		row(t, Addresses, Address{
			AddressKey:  AddressKey{net, addr("2001:db8::2")},
			Reservation: &Reservation{Host: "h1", Expires: time.Unix(5, 0).UTC()},
		}),
		row(t, ChosenMACs, MACOwner{MACKey{net, model.MAC{2, 0, 0, 0, 0, 10}}, "c:1"}),
		row(t, GroupPools, Pools{Network: net, Groups: map[model.GroupName]model.AddrRange{"web": {First: addr("10.1.1.2"), Last: addr("10.1.1.3")}}}),
		row(t, Names, Name{NameKey{"a.b", "n-1"}, "network"}),
		row(t, Subnets, SubnetBucket{BucketKey{Tenant: "a.b"}, map[string]model.NetworkName{"10.0.0.0/8": "n-1"}}),
		row(t, Subnets, SubnetBucket{BucketKey{"a.b", prefix("10.1.0.0/20")}, map[string]model.NetworkName{"10.1.1.0/24": "n-1"}}),
		row(t, Numbers, Number{NumberKey{NumberVLAN, 4094}, "a.b:n-1"}),
		row(t, InternedIdentities, Interned{InternKey: InternKey{"a.b", "0123"}, ID: 256, Draining: true}),
		row(t, References, Reference{RefKey{TargetGroup(model.GroupKey{Tenant: "a.b", Name: "web"}), "endpoint", "a.b:n-1:c/1"}}),
		row(t, NetProfiles, model.NetProfile{Key: model.NetProfileKey{Tenant: "a.b", Name: "np"}, DSCP: 10}),
		row(t, AppProfiles, model.AppProfile{Key: model.AppProfileKey{Tenant: "a.b", Name: "ap"}, Groups: []model.GroupName{"web"}}),
		row(t, LoadBalancers, model.Service{Key: model.ServiceKey{Tenant: "a.b", Name: "s"}, Network: net, Addrs: []netip.Addr{addr("10.1.1.9")}}),
		row(t, ExtContracts, model.ExtContracts{Key: model.ExtContractsKey{Tenant: "a.b", Name: "ec"}, Type: model.ContractsProvided}),
		row(t, Bgps, model.Bgp{Host: "h1", AS: 1, RouterIP: prefix("10.0.0.1/24")}),
		row(t, AciGws, model.AciGw{PhysicalDomain: "dom"}),
		row(t, SetMembers, SetMember{SetMemberKey{"s", "network", "a.b:n-1"}, "/contiv.io/state/x"}),
		row(t, HostDrains, HostDrain{Host: "h.1"}),
		row(t, HostAddressRows, HostAddresses{Host: "h.1", Enrolled: []netip.Addr{addr("10.0.0.1")}, Added: []netip.Addr{addr("10.0.0.2")}}),
		row(t, AwayTimes, AwayTime{Host: "h.1", Since: "2026-11-27T00:00:00Z", Seconds: 60}),
		row(t, Addresses, Address{AddressKey: AddressKey{net, addr("10.1.1.9")}, Service: "s"}),
		row(t, References, Reference{RefKey{TargetNetProfile(model.NetProfileKey{Tenant: "a.b", Name: "np"}), "group", "a.b:web"}}),
		row(t, Cursors, Cursor{NumberIdentity, 300}),
		row(t, Incarnations, store.Incarnation{ID: "x", Generation: 3}),
		row(t, HostStatuses, HostStatus{Host: "h1", Driver: "ebpf"}),
		row(t, Replacements, Replacement{Policy: model.PolicyKey{Tenant: "a.b", Name: "p1"}, ID: "x", Done: true}),
		row(t, StagedRules, StagedRule{Key: model.RuleKey{Tenant: "a.b", Policy: "p1", Rule: "1"}}),
		row(t, Pendings, Pending{ID: "x", Began: time.Unix(5, 0).UTC(), Within: time.Minute, Locks: []string{"a/"}}),
		row(t, clusterTrials, Trial{ID: "x", Within: time.Minute, Rows: []TrialRow{{Key: "a", Value: []byte("{}")}}}),
		row(t, tenantTrials, Trial{ID: "x", Tenant: "a.b", Within: time.Minute}),
		row(t, HostLeases, HostLease{Host: "h1", Installation: "i"}),
		row(t, Plans, Plan{Subnets: map[string]model.NetworkKey{"10.1.0.0/16": net}}),
		row(t, Endpoints, model.Endpoint{Key: model.EndpointKey{Network: net, ID: "*"}}),
		row(t, ClusterServices, model.Service{Key: model.ClusterServiceKey{Namespace: "ns", Name: "s"}.ServiceKey(), Addrs: []netip.Addr{addr("10.96.0.9")}}),
		row(t, ServiceSlices, model.ServiceSlice{Key: model.ServiceSliceKey{Namespace: "ns", Name: "s-x.y"}, Service: "s", Backends: []model.ServiceBackend{{Addr: addr("2001:db8::3")}}}),
		row(t, ClusterNodes, model.ClusterNode{Name: "n.1", Addrs: []netip.Addr{addr("10.0.0.1")}, Zone: "z"}),
		row(t, ServiceRanges, model.ServiceRanges{Ranges: []netip.Prefix{prefix("10.96.0.0/16")}}),
		row(t, KubernetesClusters, model.KubernetesCluster{UID: "c5a2f1de-7ee7-4a3c-9bb0-0a8e8ff1e1a7"}),
		row(t, L2Announcers, L2Announcer{Host: "h/1", Installation: "i", Run: 1, Seq: 2, Addrs: []netip.Addr{addr("203.0.113.7")}}),
		row(t, AnnouncedAddrs, AnnouncedAddr{addr("2001:db8::7"), "h1"}),
		row(t, BalancedAddrs, Balanced{addr("203.0.113.7"), model.ClusterServiceKey{Namespace: "ns", Name: "s"}}),
	}
}

// Decode finds the typed key and the value of every table's rows, and the key
// alone of deleted ones.
func TestDecodeFindsEveryTablesRows(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range samples(t) {
		t.Run(s.ev.KV.Key, func(t *testing.T) {
			if seen[s.ev.KV.Key] {
				t.Error("two rows share the key")
			}
			seen[s.ev.KV.Key] = true
			got, err := Decode(s.ev)
			if err != nil {
				t.Fatal(err)
			}
			s.want.Row = s.ev.KV.Key
			if diff := cmp.Diff(s.want, got, cmpAddrs); diff != "" {
				t.Error(diff)
			}
			got, err = Decode(store.Event{KV: store.KV{Key: s.ev.KV.Key}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Change{Key: s.want.Key, Row: s.want.Row}, got, cmpAddrs); diff != "" {
				t.Error(diff)
			}
			if _, err := Decode(store.Event{KV: store.KV{Key: s.ev.KV.Key, Value: []byte("{"), Create: 1}}); err == nil {
				t.Error("garbage was read without an error")
			}
		})
	}
}

// Encode writes what Decode has read where it was, and nothing that is no row.
func TestEncodeWritesWhereDecodeRead(t *testing.T) {
	for _, s := range samples(t) {
		got, err := Encode(s.want.Key, s.want.Value)
		if err != nil || got.Key != s.ev.KV.Key || string(got.Value) != string(s.ev.KV.Value) {
			t.Errorf("%s: %s %s, %v", s.ev.KV.Key, got.Key, got.Value, err)
		}
	}
	if kv, err := Encode(model.HostName("h"), model.Tenant{Name: "h"}); err == nil {
		t.Error("a tenant at a host's key: ", kv.Key)
	}
}

// Agents' prefixes hold all but allocations.
func TestAgentsPrefixesHaveAllButAllocations(t *testing.T) {
	for _, s := range samples(t) {
		key := s.ev.KV.Key
		if !strings.HasPrefix(key, StatePrefix) {
			continue
		}
		n := 0
		for _, p := range []string{GlobalPrefix, TenantPrefix("a.b"), AllocPrefix} {
			if strings.HasPrefix(key, p) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s lies under %d of the three prefixes", key, n)
		}
	}
}

// Of a tenant's rows agents follow the rest and the endpoints of networks, and both lie
// apart, or they do not need them: a new kind of row has to be of one of the three.
func TestTenantsRowsAreMirroredApart(t *testing.T) {
	unneeded := []string{"appprofiles", "assertions", "extcontracts"}
	rest := store.NewMirrorState(TenantRest("a.b"), false)
	from, to := rest.Span()
	for _, s := range samples(t) {
		key := s.ev.KV.Key
		of, is := strings.CutPrefix(key, TenantPrefix("a.b"))
		if !is {
			continue
		}
		kind, _, _ := strings.Cut(of, "/")
		endpoint := strings.HasPrefix(key, EndpointsOf(model.NetworkKey{Tenant: "a.b", Name: "n-1"}))
		n := 0
		for _, is := range []bool{rest.Wants(key), endpoint, slices.Contains(unneeded, kind)} {
			if is {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s is of %d of the three", key, n)
		}
		if endpoint && key >= from && key < to {
			t.Errorf("who follows the rest of a tenant is told of %s", key)
		}
	}
}

// Unknown keys decode to a nil Key and never panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"global/config/global", "tenant/a/networks/b", "tenant/a/x", "alloc/number/vlan/zz", "alloc/address/a/b/4zz", "alloc/ref/a", "commit", ""} {
		f.Add(s, "{}")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		c, err := Decode(store.Event{KV: store.KV{Key: StatePrefix + key, Value: []byte(value), Create: 1}})
		if err == nil && c.Key != nil && c.Value == nil {
			t.Errorf("%q decodes to a key without value", key)
		}
	})
}

// TestTablesAreComplete checks that every table of the registry has all that it
// needs and a sample above, and that the check itself sees what is missing.
func TestTablesAreComplete(t *testing.T) {
	sampled := map[registered]bool{}
	for _, s := range samples(t) {
		sampled[s.of] = true
	}
	for _, table := range registry {
		if !table.Complete() {
			t.Errorf("the declaration of %s lacks a part", table.Noun())
		}
		if !sampled[table] {
			t.Errorf("TestDecodeFindsEveryTablesRows has no sample of %s", table.Noun())
		}
	}
	if NewTable(TableSpec[string, string]{Noun: "x", Version: 1}).Complete() {
		t.Error("a table without functions counts as complete")
	}
}

// No key can be read as two tables' rows: below any word of a path there are
// words or a name, not both, and rows end at different places.
func TestPathsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range registry {
		if seen[table.path()] {
			t.Errorf("two tables lie at %s", table.path())
		}
		seen[table.path()] = true
	}
	var walk func(at *places, path string)
	walk = func(at *places, path string) {
		if at.below["*"] != nil && len(at.below) > 1 {
			t.Errorf("%s has words and names below it", path)
		}
		for word, next := range at.below {
			walk(next, path+word+"/")
		}
	}
	walk(paths(), store.Root)
}
