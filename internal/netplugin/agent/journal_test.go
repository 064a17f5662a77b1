package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// often has spool and journal looked at all the time.
func often(c *Config) { c.SpoolEvery = 10 * time.Millisecond }

// TestDamagedJournalEntryKeepsTheContainer: a running container keeps its interface and its endpoint
// whatever has become of its journal entry, and the status says so until the
// container goes.
func TestDamagedJournalEntryKeepsTheContainer(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	for name, spoil := range map[string]func(file string) error{
		"cut short": func(f string) error { return os.Truncate(f, 12) },
		"empty":     func(f string) error { return os.Truncate(f, 0) },
		"rubbish":   func(f string) error { return os.WriteFile(f, []byte("\x00\xff\x00"), 0o600) },
		"not ours":  func(f string) error { return os.WriteFile(f, []byte(`{"v":1,"true":[]}`), 0o600) },
		"removed":   os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			res, err := b.client().Attach(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			before, err := netlink.LinkByName(res.HostIf)
			if err != nil {
				t.Fatal(err)
			}
			b.stop()
			file := b.agent.Attachments.File(r.Key)
			if err := spoil(file); err != nil {
				t.Fatal(err)
			}
			b.fake = b.fake.Restart()
			b.start()
			b.ready()
			b.eventually("the port is still programmed", func() error {
				if p := b.agent.Observer.State().Ports[res.HostIf]; !p.Programmed {
					return fmt.Errorf("port: %+v", p)
				}
				return nil
			})
			if after, err := netlink.LinkByName(res.HostIf); err != nil || after.Attrs().Index != before.Attrs().Index {
				t.Errorf("the interface is not the same any more: %v", err)
			}
			if n := len(b.endpoints()); n != 1 {
				t.Errorf("%d endpoints, want the container's", n)
			}
			told := b.agent.Observer.State().Problems["damaged journal"]
			if want := name != "removed"; want != strings.Contains(told, filepath.Base(file)+".bad") {
				t.Errorf("problem: %q", told)
			}
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
				t.Fatal(err)
			}
			b.nothingLeft()
			if left, err := os.ReadDir(attachment.JournalDir(b.cfg.StateDir)); err != nil || len(left) > 0 {
				t.Errorf("files left in the journal: %v, %v", left, err)
			}
			b.agent.kick("the test")
			b.eventually("the problem has gone", func() error {
				if p := b.agent.Observer.State().Problems; len(p) > 0 {
					return fmt.Errorf("%v", p)
				}
				return nil
			})
		})
	}
}

// TestNewerJournalIsRefused refuses a journal that a newer netplugin has written, and
// touches nothing.
func TestNewerJournalIsRefused(t *testing.T) {
	b := newBed(t)
	b.ready()
	res, err := b.client().Attach(t.Context(), request("c1", newSandbox(t)))
	if err != nil {
		t.Fatal(err)
	}
	b.stop()
	file := b.agent.Attachments.File(attach.Key{Container: "c1", IfName: "eth0"})
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"version":2,"request":"of another shape"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := New(t.Context(), b.cfg); !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "newer netplugin") {
		t.Errorf("New: %v, %v; want a sentence about a newer netplugin", a, err)
	}
	if there, err := vethpair.Exists(res.HostIf); !there || err != nil {
		t.Errorf("the interface is there: %v, %v", there, err)
	}
	if err := os.WriteFile(file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	b.fake = b.fake.Restart()
	b.start()
	b.ready()
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: attach.Key{Container: "c1", IfName: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}

// TestUnwritableJournalFailsAdds: on a disk that is full, or that cannot be written,
// ADD fails with what to do and leaves nothing, DEL works, the agent says that
// it is not well, also after a restart, and is well again when the disk is.
func TestUnwritableJournalFailsAdds(t *testing.T) {
	for name, disk := range map[string]struct{ spoil, mend func(dir string) error }{
		"full": {
			func(dir string) error {
				err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 2<<20), 0o600)
				if !errors.Is(err, unix.ENOSPC) {
					return fmt.Errorf("fill the disk: %w", err)
				}
				return nil
			},
			func(dir string) error { return os.Remove(filepath.Join(dir, "ballast")) },
		},
		"read-only": {
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "") },
			func(dir string) error { return unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "attach")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			b := newBed(t, func(c *Config) { c.StateDir = filepath.Dir(dir) })
			b.ready()
			r1, r2 := request("c1", newSandbox(t)), request("c2", newSandbox(t))
			if _, err := b.client().Attach(t.Context(), r1); err != nil {
				t.Fatal(err)
			}
			if err := disk.spoil(dir); err != nil {
				t.Fatal(err)
			}
			before := b.agent.mirror.way.Addresses.Taken()
			for range 3 {
				_, err := b.client().Attach(t.Context(), r2)
				if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "--state-dir") {
					t.Errorf("Attach: %v; want unavailable, and what to do", err)
				}
			}
			if after := b.agent.mirror.way.Addresses.Taken(); after != before {
				t.Errorf("%d private addresses are taken, before it were %d", after, before)
			}
			if n := len(b.endpoints()); n != 1 {
				t.Errorf("%d endpoints, want c1's", n)
			}
			if err := b.client().Ready(t.Context()); !errors.Is(err, model.ErrUnavailable) {
				t.Errorf("Ready: %v; want unavailable", err)
			}
			b.agent.kick("the test")
			b.eventually("the status says so", func() error {
				if p := b.agent.Observer.State().Problems; !strings.Contains(p["journal"], "cannot be written") {
					return fmt.Errorf("problems: %v", p)
				}
				return nil
			})
			b.restart()
			b.eventually("c1 is detached", func() error { // it is refused until the host has its name again
				return b.client().Detach(t.Context(), attach.DetachRequest{Key: r1.Key})
			})
			b.nothingLeft()
			if err := disk.mend(dir); err != nil {
				t.Fatal(err)
			}
			b.ready()
			if _, err := b.client().Attach(t.Context(), r2); err != nil {
				t.Errorf("Attach when the disk is well again: %v", err)
			}
			if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r2.Key}); err != nil {
				t.Error(err)
			}
			b.nothingLeft()
		})
	}
}

// TestRemovedJournalIsWrittenAgain: what somebody removes of the journal while the agent runs
// is written again.
func TestRemovedJournalIsWrittenAgain(t *testing.T) {
	b := newBed(t, often)
	b.ready()
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{b.agent.Attachments.File(r.Key), attachment.JournalDir(b.cfg.StateDir)} {
		if err := os.RemoveAll(what); err != nil {
			t.Fatal(err)
		}
		b.eventually("the entry is there again after the loss of "+what, func() error {
			var e attachment.Entry
			data, err := os.ReadFile(b.agent.Attachments.File(r.Key))
			if err == nil {
				err = json.Unmarshal(data, &e)
			}
			if err == nil && e.State != attachment.StateDone {
				err = fmt.Errorf("entry: %+v", e)
			}
			return err
		})
	}
	if err := os.RemoveAll(attachment.JournalDir(b.cfg.StateDir)); err != nil {
		t.Fatal(err)
	}
	r2 := request("c2", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r2); err != nil {
		t.Errorf("Attach without the journal's directory: %v", err)
	}
	for _, r := range []attach.Request{r, r2} {
		if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
			t.Error(err)
		}
	}
	b.nothingLeft()
}

// TestClearedStateDirectoryIsUsable: a host whose state directory somebody clears is ready, and
// attaches containers.
func TestClearedStateDirectoryIsUsable(t *testing.T) {
	b := newBed(t)
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	files, err := filepath.Glob(filepath.Join(b.cfg.StateDir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the state directory has %v, %v", files, err)
	}
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.saying(http.StatusOK); err != nil {
		t.Error(err)
	}
	r := request("c1", newSandbox(t))
	if _, err := b.client().Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Error(err)
	}
}

// TestOrphanedEndpointIsReleased: an endpoint that netmaster makes after the attachment was
// given up is released by this process, which asked for it; and what refused
// attachments were hidden by is forgotten.
func TestOrphanedEndpointIsReleased(t *testing.T) {
	b := newBed(t, often, func(c *Config) { c.OrphanGrace = time.Millisecond })
	b.ready()
	for i := range 20 { // netmaster knows no such group's network
		r := request(fmt.Sprintf("refused%d", i), newSandbox(t))
		r.Network = "nowhere"
		if _, err := b.client().Attach(t.Context(), r); err == nil {
			t.Fatal("attached to a network that does not exist")
		}
	}
	r := request("c1", newSandbox(t))
	b.master.gone.Store(true) // it does not answer, and works on
	if _, err := b.client().Attach(t.Context(), r); err == nil {
		t.Fatal("attached without netmaster")
	}
	b.master.gone.Store(false)
	b.nothingLeft()
	nk, ip := model.NetworkKey{Tenant: "blue", Name: "net1"}, netip.MustParseAddr("10.1.1.200")
	ep := model.Endpoint{
		Key: model.EndpointKey{Network: nk, ID: attachment.EndpointID(testHost, r.Key)}, Host: testHost, IPv4: ip,
		MAC: model.EndpointMAC(nk, ip, netip.Addr{}), Identity: model.IdentityFirst,
	}
	b.put(func(tx store.Tx) error { return tables.Endpoints.Create(tx, ep) })
	b.eventually("the late endpoint is gone", func() error {
		if n := len(b.endpoints()); n > 0 {
			return fmt.Errorf("%d endpoints", n)
		}
		return nil
	})
}

// TestUnmanagedInterfaceIsLeftAlone: an interface of somebody else's that has the name of a
// container's is neither taken nor removed.
func TestUnmanagedInterfaceIsLeftAlone(t *testing.T) {
	b := newBed(t)
	b.ready()
	r := request("c1", newSandbox(t))
	res, err := b.client().Attach(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := netlink.LinkByName(res.HostIf)
	if err == nil {
		err = netlink.LinkDel(ours)
	}
	theirs := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: res.HostIf}}
	if err == nil {
		err = netlink.LinkAdd(theirs)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(theirs); err != nil {
			t.Errorf("the foreign interface has gone: %v", err)
		}
	})
	if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
		t.Errorf("Detach: %v", err)
	}
	if _, err := b.client().Attach(t.Context(), r); !errors.Is(err, model.ErrExists) || !strings.Contains(err.Error(), "ip link del "+res.HostIf) {
		t.Errorf("Attach: %v; want a sentence about the interface", err)
	}
	b.nothingLeft()
}

// TestUnreadableSpoolIsAProblem: rubbish among the spooled deletions is a problem until it
// is gone.
func TestUnreadableSpoolIsAProblem(t *testing.T) {
	b := newBed(t, often)
	b.ready()
	b.stop()
	rubbish := filepath.Join(b.cfg.StateDir, "spool", "a.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(rubbish), 0o700), os.WriteFile(rubbish, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.restart()
	told := func() string { return b.agent.Observer.State().Problems["spool"] }
	b.eventually("it is told", func() error {
		if !strings.Contains(told(), "a.json") {
			return errors.New("the problem says " + told())
		}
		return nil
	})
	if err := os.Remove(rubbish); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is told no more", func() error {
		if told() != "" {
			return errors.New("the problem says " + told())
		}
		return nil
	})
}
