package testcluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A host with a first process of its own has daemons and commands with other processes,
// mounts and name than the machine's, and they all end with the first one, as do unknown
// ones.
func TestProcessesOfAHostEndWithItsFirst(t *testing.T) {
	if m := (Config{Driver: DriverEBPF, Bare: true, Embedded: true}).Missing(); len(m) > 0 {
		t.Skip(m[0])
	}
	const first = `mount --make-rprivate / && mount -t proc proc /proc && hostname "$HOST" && mount -t tmpfs none /mnt && echo "$HOST" >/mnt/whose && touch "$READY" && sleep 1000 & wait; sleep 1000`
	l, err := Up(t.Context(), Config{Name: "machine", Hosts: 2, Bare: true, HostInit: []string{"/bin/sh", "-c", first}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again, err := Open("machine")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, h := range again.Hosts() {
		if out, err := h.Run(t.Context(), "/bin/sh", "-c", "cat /mnt/whose; hostname"); err != nil || out != h.Name+"\n"+h.Name+"\n" {
			t.Errorf("inside %s of an opened lab: %v\n%s", h.Name, err, out)
		}
	}
	for _, h := range l.Hosts() {
		out, err := h.Run(t.Context(), "/bin/sh", "-c", "cat /mnt/whose; cat /proc/1/comm; hostname; ip -br address show eth0")
		if err != nil || !strings.HasPrefix(out, h.Name+"\nsh\n"+h.Name+"\neth0") || !strings.Contains(out, h.Address.String()) {
			t.Errorf("inside %s: %v\n%s", h.Name, err, out)
		}
		own := filepath.Join(h.Dir, "own")
		daemon, err := h.Start("daemon", nil, "/bin/sh", "-c", `cat /mnt/whose >`+own+`; hostname >>`+own+`; setsid sleep 1000 & wait`)
		if err != nil {
			t.Fatal(err)
		}
		if err := Until(ctx, "what the daemon writes", func(context.Context) error {
			b, err := os.ReadFile(own)
			if err == nil && string(b) != h.Name+"\n"+h.Name+"\n" {
				err = os.ErrNotExist
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := h.Process("init").Kill(); err != nil {
			t.Fatal(err)
		}
		if err := daemon.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat("/mnt/whose"); err == nil {
		t.Error("a host's mount is the machine's")
	}
	if name, err := os.Hostname(); err != nil || name == l.Hosts()[0].Name || name == l.Hosts()[1].Name {
		t.Errorf("the machine's name is %q (%v)", name, err)
	}
}
