//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// embedded says that a mistake is made on netmaster's own etcd.
const embedded = "embedded"

// restoreMistakes are about backups, which netmaster restores for its own etcd.
// What was changed after a backup is lost by its restore, so none may be under
// way; and no agent may be away, which has to put its attachments back.
func restoreMistakes() []*mistake {
	control := []string{"master", "store"}
	alone := []string{"master", "store", "agent", "policy", "networks"}
	return []*mistake{
		{name: "a backup made", store: embedded, needs: alone, do: makeBackup},
		{name: "the store restored from a backup of just now", store: embedded, needs: alone, do: restoreNow},
		{name: "the store restored from an old backup", store: embedded, needs: alone, do: restoreOld},
		{name: "the store's directory put back from an old copy", store: embedded, needs: alone, do: putCopyBack},
		{name: "a wrong restore", store: embedded, needs: control, do: wrongRestore},
		{name: "hosts told to follow the store that they follow", needs: append(control, "agent"), do: adoptAgain},
	}
}

// data is the data directory of netmaster's own etcd.
func (w *world) data() string { return filepath.Join(w.Config().Dir, "master", "data") }

// keepSafe makes the first backup, and a copy of the store's directory.
func (w *world) keepSafe(ctx context.Context) error {
	if !w.Config().Embedded {
		return nil
	}
	w.copied = w.data() + ".copy"
	_, err := w.backup(ctx)
	return errors.Join(err, w.Process("netmaster").Stop(10*time.Second), os.CopyFS(w.copied, os.DirFS(w.data())), w.startMaster(ctx))
}

func (w *world) backup(ctx context.Context) (string, error) {
	file := filepath.Join(w.Config().Dir, fmt.Sprintf("%d.backup", len(w.backups)))
	w.backups = append(w.backups, file)
	return file, w.netctl(ctx, "backup "+file)
}

// makeBackup makes a backup that holds a container which ends soon after.
func makeBackup(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	s, err := w.victim(ctx, w.anyHost(r))
	if err != nil {
		return nil, err
	}
	_, err = w.backup(ctx)
	return nil, errors.Join(err, w.DelContainer(ctx, s))
}

func (w *world) anyHost(r *rand.Rand) *testcluster.Host {
	return w.Hosts()[r.IntN(len(w.Hosts()))]
}

func restoreNow(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	return nil, w.restores(ctx, r, "")
}

func restoreOld(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	return nil, w.restores(ctx, r, w.backups[r.IntN(len(w.backups))])
}

// restores restores a given backup, or one that it makes: a container that ended
// after the backup stays away, one that came after it stays where it is, and intent
// that was changed after it is as before.
func (w *world) restores(ctx context.Context, r *rand.Rand, file string) error {
	ended, err := w.victim(ctx, w.anyHost(r))
	if err != nil {
		return err
	}
	if file == "" {
		if file, err = w.backup(ctx); err != nil {
			return err
		}
	}
	w.t.Logf("restoring %s of %d backups", filepath.Base(file), len(w.backups))
	return w.survives(ctx, ended, w.anyHost(r), func() error {
		out, err := w.restore(ctx, file)
		if err != nil {
			return fmt.Errorf("restore: %w: %s", err, out)
		}
		if err := w.removeRestoreBackups(); err != nil {
			return err
		}
		return w.Masters.StartMaster(ctx)
	})
}

// survives ends one container and begins another on a host, changes the intent,
// has the store replaced while netmaster is down, and looks at what became of
// all that.
func (w *world) survives(ctx context.Context, ended testcluster.ContainerSpec, h *testcluster.Host, replace func() error) error {
	came, err := w.victim(ctx, h)
	if err != nil {
		return err
	}
	a, err := w.Container(came.Name)
	if err != nil {
		return err
	}
	err = errors.Join(w.DelContainer(ctx, ended), w.netctl(ctx, "policy rule-add -t blue -d in -p 50 -l udp -P 9 -j deny p later"))
	if err = errors.Join(err, w.Process("netmaster").Kill(), replace()); err != nil {
		return err
	}
	start := time.Now()
	if err := w.ready(ctx); err != nil {
		return fmt.Errorf("after the store was replaced: %w", err)
	}
	w.t.Logf("all hosts follow it after %v", time.Since(start).Round(time.Millisecond))
	out, err := w.Masters.Netctl(ctx, "policy", "rule-ls", "-t", "blue", "p")
	if err == nil && strings.Contains(out, "later") {
		err = fmt.Errorf("a rule that came after the backup is still there:\n%s", out)
	}
	err = errors.Join(err, w.spares(ctx, "other1", came.Name), w.reaches(ctx, "other1", a))
	return errors.Join(err, w.DelContainer(ctx, came), w.spares(ctx, "other1"))
}

// spares waits until the store has these containers in the victims' group, with
// their addresses, and no others.
func (w *world) spares(ctx context.Context, names ...string) error {
	want := map[string]bool{}
	for _, n := range names {
		a, err := w.Container(n)
		if err != nil {
			return err
		}
		want[a.Host+" "+a.IPv4.String()] = true
	}
	c, err := w.Masters.API()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	return testcluster.Until(ctx, "the store to have "+strings.Join(names, ", "), func(ctx context.Context) error {
		eps, err := c.Endpoints(ctx, api.EndpointFilter{Group: "blue:spare"})
		if err != nil {
			return err
		}
		var have []string
		right := len(eps) == len(want)
		for _, e := range eps {
			have = append(have, e.HomingHost+" "+e.IPAddress[0])
			right = right && want[e.HomingHost+" "+e.IPAddress[0]]
		}
		if !right {
			return fmt.Errorf("it has %v and not %v", have, want)
		}
		return nil
	})
}

// reaches fails unless a container reaches another one within 3 seconds; it does
// not try while a mistake cuts hosts off each other, or cuts h1, from which is
// asked, off the store, by which h1 learns of new containers.
func (w *world) reaches(ctx context.Context, from string, to *testcluster.Attachment) error {
	if w.cut || w.down["h1-netplugin"] {
		return nil
	}
	p, err := w.space(from).StartPing(to.IPv4, pingEvery)
	if err != nil {
		return err
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return errors.Join(testcluster.Until(ctx, from+" to reach "+to.Name, func(context.Context) error {
		if s := p.Between(start, time.Now()); s.Received < 5 {
			return errors.New(s.String())
		}
		return nil
	}), p.Stop())
}

// restore runs netmaster --restore.
func (w *world) restore(ctx context.Context, file string) (string, error) {
	out, err := w.Master.Command(ctx, filepath.Join(w.Config().BinDir, "netmaster"), "--restore", file,
		"--data-dir", w.data(), "--internal-address", "127.0.0.1:9999").CombinedOutput()
	return string(out), err
}

// removeRestoreBackups removes what restores have put aside, 64 MB each.
func (w *world) removeRestoreBackups() error {
	kept, err := filepath.Glob(filepath.Join(w.data(), "member.before-restore-*"))
	for _, k := range kept {
		err = errors.Join(err, os.RemoveAll(k))
	}
	return err
}

// leasesEnd is how many pings are sent until a store's leases have ended.
const leasesEnd = int(12 * time.Second / pingEvery)

// putCopyBack starts netmaster on an old copy of its directory, which has no store
// generation: hosts keep their desired state until 'store adopt'. The old copy's leases on
// hosts' names last another 10 s; an agent whose installation differs by now waits for
// their end.
func putCopyBack(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	ended, err := w.victim(ctx, w.anyHost(r))
	if err != nil {
		return nil, err
	}
	return nil, w.survives(ctx, ended, w.anyHost(r), func() error {
		if err := errors.Join(os.RemoveAll(w.data()), os.CopyFS(w.data(), os.DirFS(w.copied)), w.Masters.StartMaster(ctx)); err != nil {
			return err
		}
		return errors.Join(w.flow(ctx, leasesEnd), w.netctl(ctx, "store adopt"))
	})
}

// wrongRestore tries a restore that cannot be (netmaster runs; the file is missing,
// no backup, or torn): it is refused in words, and nothing changes.
func wrongRestore(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	file := w.backups[r.IntN(len(w.backups))]
	running := false
	switch r.IntN(4) {
	case 0:
		running = true
	case 1:
		file += ".nosuch"
	case 2:
		file = filepath.Join(w.Config().BinDir, "netctl")
	default:
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		file += ".torn"
		if err := os.WriteFile(file, b[:r.IntN(len(b))], 0o600); err != nil {
			return nil, err
		}
	}
	w.t.Logf("netmaster --restore %s, with netmaster running: %v", filepath.Base(file), running)
	if !running {
		if err := w.Process("netmaster").Stop(10 * time.Second); err != nil {
			return nil, err
		}
	}
	out, err := w.restore(ctx, file)
	switch {
	case err == nil:
		err = fmt.Errorf("restoring %s succeeded: %s", file, out)
	case strings.TrimSpace(out) == "", strings.Contains(out, "goroutine "):
		err = fmt.Errorf("restoring %s says %q", file, out)
	default:
		err = nil
	}
	if !running {
		err = errors.Join(err, w.startMaster(ctx))
	}
	return nil, err
}

func adoptAgain(ctx context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	switch err := w.netctl(ctx, "store adopt"); {
	case err == nil:
		return nil, errors.New("netctl store adopt succeeded, and no host keeps the desired state of another store")
	case !strings.Contains(err.Error(), "no host reports"):
		return nil, err
	}
	return nil, w.ready(ctx)
}
