package tables

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// notForHosts are the tables of tenants and of the whole cluster that no host reads.
var notForHosts = map[string]bool{
	"state/tenant/*/appprofiles/*": true, "state/tenant/*/assertions/*": true, "state/tenant/*/extcontracts/*": true,
	"state/tenant/*/volumes/*": true, "state/tenant/*/volumeprofiles/*": true,
	"state/global/config/aciGw": true,
}

// TestEveryTableSaysWhetherHostsReadIt: a new table is for hosts because somebody said so.
func TestEveryTableSaysWhetherHostsReadIt(t *testing.T) {
	for _, table := range registry {
		key := store.Root + strings.ReplaceAll(table.path(), "*", "x")
		_, global := ShowGlobal("h1", store.KV{Key: key})
		reads := global || AllRows.Shows(key)
		switch outside := !strings.HasPrefix(key, GlobalPrefix) && !strings.HasPrefix(key, tenantsPrefix); {
		case reads && (outside || notForHosts[table.path()]):
			t.Errorf("hosts read %s", table.path())
		case !reads && !outside && !notForHosts[table.path()]:
			t.Errorf("no host reads %s, and nothing says that none should", table.path())
		}
	}
}

func TestHostReadsOnlyItsOwnPasswords(t *testing.T) {
	kv, err := Encode(BgpKey{"h1"}, model.Bgp{Host: "h1", AS: 65000, Password: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	kv.Create, kv.Mod = 1, 1
	for host, want := range map[model.HostName]bool{"h1": true, "h2": false, "": false} {
		got, shown := ShowGlobal(host, kv)
		b, _, err := store.DecodeRecord[model.Bgp](got.Value)
		if !shown || err != nil || b.AS != 65000 || (b.Password == "s3cret") != want {
			t.Errorf("host %q gets %s: %v, %v", host, got.Value, shown, err)
		}
	}
	kv.Value = []byte("s3cret")
	if got, _ := ShowGlobal("h2", kv); strings.Contains(string(got.Value), "s3cret") {
		t.Errorf("host h2 gets %s of a row that cannot be read", got.Value)
	}
	if got, shown := ShowGlobal("h2", store.KV{Key: kv.Key, Mod: 2}); !shown || got.Value != nil || got.Exists() {
		t.Errorf("a deletion becomes %+v", got)
	}
}

func TestTenantIsReadFromPrefixes(t *testing.T) {
	for prefix, want := range map[string]string{
		TenantPrefix("blue"): "blue", TenantPrefix("a/b") + "rules/": "a/b", TenantPrefix("blue") + "ru": "blue",
		tenantsPrefix: "", tenantsPrefix + "blue": "", GlobalPrefix: "", StatePrefix: "", "": "",
	} {
		if got, ok := TenantOfPrefix(prefix); string(got) != want || ok != (want != "") {
			t.Errorf("%s is of tenant %q, %v", prefix, got, ok)
		}
	}
}
