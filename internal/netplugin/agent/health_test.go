package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// saying returns an error unless /healthz and /readyz answer with a status, and
// with exactly these conditions not holding, in text and in JSON.
func (b *bed) saying(status int, broken ...string) error {
	if err := b.sayingAt("/healthz", status, broken...); err != nil {
		return err
	}
	return b.sayingAt("/readyz", status, broken...)
}

func (b *bed) sayingAt(path string, status int, broken ...string) error {
	base := "http://" + b.agent.RESTAddr().String()
	got, body := do(b.t, http.DefaultClient, http.MethodGet, base+path, "")
	first, rest, _ := strings.Cut(body, "\n")
	if got != status || (first == "ok") != (status == http.StatusOK && !slices.Contains(broken, "objects")) {
		return fmt.Errorf("GET %s: %d %q, want %d", path, got, body, status)
	}
	for _, name := range broken {
		if !strings.Contains("\n"+rest, "\n"+name+": ") && !strings.Contains("\n"+rest, "\nnotice: "+name+": ") && !strings.Contains("\n"+rest, "\nwarning: "+name+": ") {
			return fmt.Errorf("GET %s: %q does not name condition %s", path, body, name)
		}
	}
	got, body = do(b.t, http.DefaultClient, http.MethodGet, base+path+"?format=json", "")
	var h api.Health
	if err := json.Unmarshal([]byte(body), &h); err != nil || got != status || path == "/readyz" && h.Ready != (status == http.StatusOK) || len(h.Conditions) != observe.Conditions() {
		return fmt.Errorf("GET %s in JSON: %d %s, want %d", path, got, body, status)
	}
	var named []string
	for _, c := range h.Conditions {
		if !c.OK {
			named = append(named, c.Name)
		}
	}
	if !slices.Equal(named, broken) {
		return fmt.Errorf("GET %s names %v, want %v: %s", path, named, broken, body)
	}
	return nil
}

func (b *bed) says(status int, broken ...string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("health %d %v", status, broken), func() error { return b.saying(status, broken...) })
}

// TestHealthNamesEachFaultUntilItIsMended breaks what health has to tell, one thing after the other; each is
// told, and gone when it is mended.
func TestHealthNamesEachFaultUntilItIsMended(t *testing.T) {
	ends := time.Now().Add(90 * 24 * time.Hour)
	var certificate sync.Mutex
	end := func(at time.Time) {
		certificate.Lock()
		defer certificate.Unlock()
		ends = at
	}
	b := newBed(t, func(c *Config) {
		c.Support = &supportbundle.Support{Certificates: func() []api.Certificate {
			certificate.Lock()
			defer certificate.Unlock()
			return []api.Certificate{{Use: "its own certificate", Subject: "CN=h", Ends: ends}}
		}}
	})
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	well := b.scrape()
	end(time.Now().Add(time.Hour))
	b.says(http.StatusOK, "certificates")
	testenv.AlertsFire(t, well, b.scrape(), "ContivCertificateEnds")
	end(time.Now().Add(-time.Hour))
	b.says(http.StatusOK, "certificates")
	end(time.Now().Add(90 * 24 * time.Hour))
	b.says(http.StatusOK)
	r := request("c1", newSandbox(t))
	res, err := b.client().Attach(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	b.says(http.StatusOK)

	t.Run("netmaster away", func(*testing.T) {
		b.master.gone.Store(true)
		b.says(http.StatusServiceUnavailable, "netmaster")
		b.master.gone.Store(false)
		b.says(http.StatusOK)
	})
	t.Run("store away", func(*testing.T) {
		b.agentS.Unavailable(true)
		b.agentS.DropWatches()
		b.says(http.StatusServiceUnavailable, "store")
		b.agentS.Unavailable(false)
		b.says(http.StatusOK)
	})
	t.Run("an endpoint that nobody here reaches", func(*testing.T) {
		far := model.Endpoint{
			Key:  model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "far"},
			Host: "unknown-host", IPv4: netip.MustParseAddr("10.1.1.99"), MAC: model.MAC{2, 2, 10, 1, 1, 99}, Identity: model.IdentityFirst,
		}
		b.put(func(tx store.Tx) error { return tables.Endpoints.Put(tx, far) })
		b.eventually("the host is ready and not well", func() error {
			return errors.Join(b.sayingAt("/readyz", http.StatusOK, "objects"), b.sayingAt("/healthz", http.StatusServiceUnavailable, "objects"))
		})
		b.put(func(tx store.Tx) error { tables.Endpoints.Delete(tx, far.Key); return nil })
		b.says(http.StatusOK)
	})
	t.Run("a group that cannot be read", func(*testing.T) {
		key := tables.Groups.Key(model.GroupKey{Tenant: "blue", Name: "damaged"})
		b.put(func(tx store.Tx) error { tx.Put(key, []byte("no record"), nil); return nil })
		b.eventually("the host is ready and not well", func() error {
			return errors.Join(b.sayingAt("/readyz", http.StatusOK, "objects"), b.sayingAt("/healthz", http.StatusServiceUnavailable, "objects"))
		})
		b.put(func(tx store.Tx) error { tx.Delete(key); return nil })
		b.says(http.StatusOK)
	})
	t.Run("host record gone", func(*testing.T) {
		b.master.deaf.Store(true) // so that the agent cannot have it written again
		b.put(func(tx store.Tx) error { tables.Hosts.Delete(tx, testHost); return nil })
		b.says(http.StatusServiceUnavailable, "tunnel")
		b.master.deaf.Store(false)
		b.says(http.StatusOK)
	})
	t.Run("veth renamed on the host", func(t *testing.T) { // the container has no part in that
		rename := func(from, to string) {
			l, err := netlink.LinkByName(from)
			if err == nil {
				err = errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to), netlink.LinkSetUp(l))
			}
			if err != nil {
				t.Fatal(err)
			}
			b.agent.kick("test")
		}
		rename(res.HostIf, "renamed")
		b.says(http.StatusServiceUnavailable, "ports")
		testenv.AlertsFire(t, well, b.scrape(), "ContivPortsPending")
		rename("renamed", res.HostIf)
		b.says(http.StatusOK)
	})
	t.Run("veth deleted", func(t *testing.T) {
		if err := vethpair.Delete(res.HostIf, vethpair.AliasPrefix+res.Endpoint); err != nil {
			t.Fatal(err)
		}
		b.agent.kick("test")
		b.says(http.StatusOK, "containers")
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
			t.Fatal(err)
		}
		b.says(http.StatusOK)
	})
}

// TestLostEndpointIsUnhealthy: an attachment whose endpoint is gone from the store is reported.
func TestLostEndpointIsUnhealthy(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	key := b.endpoints()[0].Key
	b.put(func(tx store.Tx) error { // its address is another's, so that it cannot be put back
		thief, err := tables.Endpoints.Get(tx, key)
		thief.Key.ID, thief.Host = "thief", "somewhere"
		tables.Endpoints.Delete(tx, key)
		return errors.Join(err, tables.Endpoints.Put(tx, thief))
	})
	b.says(http.StatusServiceUnavailable, "attachments")
	b.put(func(tx store.Tx) error {
		key := key
		key.ID = "thief"
		tables.Endpoints.Delete(tx, key)
		return nil
	})
	b.says(http.StatusOK)
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Fatal(err)
	}
	b.says(http.StatusOK)
}

// TestFullStateDirectoryIsUnhealthy fills the file system of the state directory.
func TestFullStateDirectoryIsUnhealthy(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	dir := filepath.Join(b.dir, "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,nr_inodes=1000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	b.stop()
	b.cfg.StateDir = dir
	b.start()
	b.says(http.StatusOK)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 64<<20-1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.says(http.StatusServiceUnavailable, "disk", "remarks")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.says(http.StatusOK)
	many := filepath.Join(dir, "many") // files, not bytes
	err := os.Mkdir(many, 0o700)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(many, strconv.Itoa(i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.says(http.StatusServiceUnavailable, "disk", "remarks")
	if err := os.RemoveAll(many); err != nil {
		t.Fatal(err)
	}
	b.agent.kick("test")
	b.says(http.StatusOK)
	b.stop()
}
