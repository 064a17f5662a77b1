package membership

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// TestNetmastersOnAnExternalEtcdFormACluster: netmasters whose store is an etcd of the user's own form a cluster as
// those with the embedded store do. They share the authorities by their own ports, keep their
// rows there, and run no etcd. One whose directory was lost is replaced, however many others
// are away. A netmaster that would make other authorities for the same store is refused.
func TestNetmastersOnAnExternalEtcdFormACluster(t *testing.T) {
	t.Parallel()
	etcd := start(t, config(t, 151, "etcd")).server.client
	store := clientv3.NewCtxClient(t.Context())
	store.KV, store.Lease = namespace.NewKV(etcd.KV, "elsewhere"), etcd.Lease
	r := newRecord()
	r.lost = true
	var cfgs []Config
	var doors []string
	for i, name := range []string{"n1", "n2", "n3"} {
		cfgs = append(cfgs, config(t, 152+i, name))
		doors = append(doors, cfgs[i].EnrollmentAddress)
	}
	members := make([]*Member, len(cfgs))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	var starting sync.WaitGroup
	for i := range cfgs {
		cfgs[i] = r.forming(cfgs[i], doors...)
		cfgs[i].Store = store
		starting.Go(func() {
			var err error
			if members[i], err = Start(ctx, cfgs[i]); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { closed(t, members[i]) })
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	clients := fingerprint(members[0].Authorities.clients.Load())
	whole := func(what string, m *Member) {
		t.Helper()
		all, err := m.Roster.List(t.Context())
		if err != nil || len(all) != 3 || slices.ContainsFunc(all, func(i Info) bool { return i.Role != Voter || !i.isAlive() }) || len(Warnings(all)) > 0 {
			t.Errorf("%s: %+v, %v, %q", what, all, err, Warnings(all))
		}
		if got := fingerprint(m.Authorities.clients.Load()); got != clients {
			t.Errorf("%s: it has another authority of hosts", what)
		}
		if _, err := os.Stat(filepath.Join(m.Dir(), dataName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it has an etcd: %v", what, err)
		}
	}
	for _, m := range members {
		whole(m.Name(), m)
	}
	if len(r.founded) != 1 {
		t.Errorf("founders: %v", r.founded)
	}
	_, token, err := members[0].Enrolment.NewHostToken(t.Context(), "host1", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(token.Addresses) != 3 {
		t.Errorf("a host may join at %v", token.Addresses)
	}

	stranger := config(t, 155, "stranger")
	stranger.Store, stranger.Secure = store, []string{"127.0.0.1"}
	_, err = Start(ctx, stranger)
	is(t, "another founder", err, model.ErrConflict, "belongs to netmasters with another authority", clientsRow)

	closed(t, members[1])
	closed(t, members[2])
	all, err := members[0].Roster.List(t.Context())
	if w := Warnings(all); err != nil || len(w) != 1 || w[0] != "n2, n3: no answer; start it, or 'netctl cluster remove' it if it is lost for good" {
		t.Errorf("two are away: %q, %v", w, err)
	}
	again := cfgs[2]
	again.Dir = filepath.Join(t.TempDir(), "empty")
	m := start(t, again)
	start(t, cfgs[1])
	whole("in an empty directory", m)
	if err := members[0].Roster.Remove(t.Context(), "n3", false); err == nil {
		t.Error("a netmaster that lives is removed")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Enrolment.enrollHost(t.Context(), jointoken.HostRequest{ID: token.ID, Secret: token.Secret, Name: "host1", CSR: csr}); err != nil {
		t.Errorf("a host joins another netmaster than its token was made at: %v", err)
	}
	if err := renews(t, members[0], certified(t, m, "host1")); !errors.Is(err, model.ErrConflict) {
		t.Errorf("a certificate of another key is renewed: %v", err)
	}
}
