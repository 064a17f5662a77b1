package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// TestFullDiskStopsNetmasterWithARemedy: a netmaster whose disk is full warns before, ends with a
// sentence that says what to do, and has all that it answered when it starts
// again with space.
func TestFullDiskStopsNetmasterWithARemedy(t *testing.T) {
	testenv.Need(t)
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	args := []string{"--data-dir", filepath.Join(disk, "etcd"), "--etcd-listen", storetest.FreePort(t)}
	p := start(t, nil, args...)
	p.ready()
	p.until("the log warns of few space", func() bool { return strings.Contains(p.log.String(), "MB free") })
	tenant := func(name string) error {
		_, err := p.Tenants().Create(t.Context(), api.Tenant{TenantName: name})
		return err
	}
	if err := tenant("kept"); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 256<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v", err)
	}
	for i, over := 0, false; !over; i++ {
		_ = tenant(fmt.Sprintf("more%d", i)) // some time it takes no more
		select {
		case <-p.done:
			over = true
		default:
		}
		if i > 20000 {
			t.Fatal("a full disk does not end it")
		}
	}
	log := p.log.String()
	for _, unwanted := range []string{"goroutine ", "panic:", ".go:"} {
		if strings.Contains(log, unwanted) {
			t.Errorf("the log has %q: a trace of Go is no sentence\n%s", unwanted, log)
			break
		}
	}
	var said []string // what it ends with; what else is ending may log after it
	for line := range strings.SplitSeq(log, "\n") {
		if strings.HasPrefix(line, "netmaster: ") {
			said = append(said, line)
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "no space left on device") || !strings.Contains(said[0], "free some space there") {
		t.Errorf("it ends with %q:\n%s", said, log)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p = start(t, nil, args...)
	p.ready()
	if _, err := p.Tenants().Get(t.Context(), "kept"); err != nil {
		t.Errorf("what was answered before the disk was full: %v", err)
	}
}

// TestRemovedDataDirectoryIsReported: the removal of the data directory of a running netmaster is reported,
// with a remedy.
func TestRemovedDataDirectoryIsReported(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "etcd")
	p := start(t, nil, "--data-dir", dir, "--etcd-listen", storetest.FreePort(t))
	p.ready()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.until("the log tells of it", func() bool {
		return strings.Contains(p.log.String(), "was removed while netmaster runs") && strings.Contains(p.log.String(), "netctl export")
	})
	p.until("readiness has a notice of it", func() bool {
		resp, err := http.DefaultClient.Do(request(t, "http://"+p.api+"/readyz"))
		if err != nil {
			return false
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it has been read
		return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(text), "disk: the data directory "+dir+" was removed")
	})
}
