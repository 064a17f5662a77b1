package testcluster

import (
	"strings"
	"testing"
)

// TestReplicasHaveAddresses checks that every replica has an address and a name of its
// own, that no host has one of these, and that one alone is what it has always been.
func TestReplicasHaveAddresses(t *testing.T) {
	for n, want := range map[int]string{
		0: "http://10.251.0.2:9999",
		3: "http://10.251.0.2:9999,http://10.251.0.3:9999,http://10.251.0.4:9999",
	} {
		cfg := Config{Name: "x", Replicas: n}
		if err := cfg.fill(); err != nil {
			t.Fatal(err)
		}
		c := &core{st: state{Config: cfg}}
		store := &Store{core: c, certificates: &certificates{c}}
		masters := &Masters{core: c, certificates: store.certificates, store: store}
		if got := masters.MasterURLs(); got != want {
			t.Errorf("%d replicas are at %s, want %s", n, got, want)
		}
		if got, want := store.StoreURLs(), strings.ReplaceAll(want, "9999", "2379"); got != want {
			t.Errorf("the store of %d replicas is at %s, want %s", n, got, want)
		}
	}
	last := firstHost - masterHost
	if a := replicaAddress(last); a == address(control, firstHost).Addr() || a.Next() != address(control, firstHost).Addr() {
		t.Errorf("replica %d is at %s, and the first host at %s", last, a, address(control, firstHost).Addr())
	}
	if one, two := replicaName("etcd", 1), replicaName("etcd", 2); one != "etcd" || two != "etcd2" {
		t.Errorf("they are called %s and %s", one, two)
	}
}

func TestReplicasNeedProcesses(t *testing.T) {
	for _, cfg := range []Config{
		{Name: "x", Replicas: 3, Consul: "/consul"}, {Name: "x", Replicas: -1}, {Name: "x", Replicas: 10},
	} {
		if err := cfg.fill(); err == nil || !strings.Contains(err.Error(), "replicas") {
			t.Errorf("%+v: %v, want a refusal that says why", cfg, err)
		}
	}
}
