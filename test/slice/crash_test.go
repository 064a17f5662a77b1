//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// debugEnv lets tests pause an agent's mirror and kill it at a step.
const debugEnv = "CONTIV_NETPLUGIN_DEBUG_HOOKS=true"

// traces is what attachments leave on a host and in the cluster.
type traces struct {
	Links     []string // of the host
	Ports     []string // of the data plane
	Journal   []string
	Endpoints int
}

func (c *cluster) traces(ctx context.Context, h *testcluster.Host) (traces, error) {
	var tr traces
	var err error
	if tr.Links, err = h.NS.Links(); err != nil {
		return tr, err
	}
	if tr.Ports, err = h.Ports(ctx); err != nil {
		return tr, err
	}
	tr.Endpoints, err = c.endpoints(ctx, "blue:net")
	if err != nil {
		return tr, err
	}
	err = filepath.WalkDir(filepath.Join(h.StateDir(), "attach"), func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			tr.Journal = append(tr.Journal, d.Name())
		}
		return err
	})
	return tr, err
}

// TestKillAtEveryStep kills netplugin (SIGKILL, by itself) at each step of ADD
// and of DEL, starts it again, and checks that nothing is left: no link, no
// port of the data plane, no endpoint, no journal entry.
func TestKillAtEveryStep(t *testing.T) {
	shared(t)
	onOne(t, both, killAtEveryStep)
}

func killAtEveryStep(t *testing.T, driver string) {
	c := up(t, driver, "crash", 1)
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 net", "group create -t blue net g")
	h := c.host("h1")
	// One container stays, so that "nothing left" does not mean "all swept".
	c.add(spec("stays", "h1", "blue/net/g"))
	clean, err := c.traces(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	ofDel := slices.Index(attachment.Steps, attachment.StepPendingRelease)
	for i, step := range attachment.Steps {
		t.Run(step, func(t *testing.T) {
			s := spec("k"+step, "h1", "blue/net/g")
			ns, err := c.AddNamespace(s.Name)
			if err != nil {
				t.Fatal(err)
			}
			if i >= ofDel {
				if _, err := c.CNIAdd(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.RestartAgent(t.Context(), debugEnv, "CONTIV_NETPLUGIN_TEST_KILL="+step); err != nil {
				t.Fatal(err)
			}
			victim := h.Agent()
			if i < ofDel {
				_, err = c.CNIAdd(t.Context(), s)
				if err == nil {
					t.Fatalf("ADD succeeded, though netplugin was to die at step %s", step)
				}
			} else if err := c.CNIDel(t.Context(), s); err != nil {
				t.Errorf("DEL with netplugin dying at step %s: %v", step, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := victim.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := h.StartAgent(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second) // a start may take long by itself
			defer cancel()
			if step == attachment.StepDone { // made, but the runtime does not know: it undoes
				if err := c.CNIDel(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
			var got traces
			err = testcluster.Until(ctx, "nothing to be left", func(ctx context.Context) error {
				if got, err = c.traces(ctx, h); err != nil {
					return err
				}
				if !cmp.Equal(clean, got) {
					return errors.New("something is")
				}
				return nil
			})
			if err != nil {
				t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(clean, got))
			}
			if links, err := ns.Links(); err != nil || len(links) != 1 {
				t.Errorf("links in the container: %v, %v, want lo alone", links, err)
			}
			t.Logf("clean %v after netplugin's start", time.Since(start).Round(time.Millisecond))
			if err := c.DropContainer(s.Name); err != nil {
				t.Error(err)
			}
		})
	}
	if a := c.host("h1").Status(t.Context()); a != nil {
		t.Error(a)
	}
	c.add(spec("after", "h1", "blue/net/g"))
	c.wants("after stays tcp/80", testcluster.OK)
}

// TestDelIsReplayedAfterNetpluginWasDown checks that DEL with netplugin down exits 0 and is replayed, that
// STATUS answers code 50 meanwhile, and that GC releases what was lost.
func TestDelIsReplayedAfterNetpluginWasDown(t *testing.T) {
	shared(t)
	onOne(t, both, spool)
}

func spool(t *testing.T, driver string) {
	c := up(t, driver, "spool", 1)
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 net")
	h := c.host("h1")
	gone, lost := spec("gone", "h1", "blue/net"), spec("lost", "h1", "blue/net")
	c.add(gone, lost, spec("stays", "h1", "blue/net"))
	c.hasEndpoints("blue:net", 3)
	if err := h.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if err := h.Status(t.Context()); err == nil || !strings.Contains(fmt.Sprintf("%+v", err), "50") && !strings.Contains(err.Error(), "netplugin") {
		t.Errorf("STATUS with netplugin down: %v, want code 50", err)
	}
	if err := c.DelContainer(t.Context(), gone); err != nil {
		t.Errorf("DEL with netplugin down: %v", err)
	}
	if err := h.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:net", 2)
	if err := c.DropContainer("lost"); err != nil {
		t.Fatal(err)
	}
	if err := c.CNIGC(t.Context(), "h1", "stays"); err != nil {
		t.Errorf("GC: %v", err)
	}
	c.hasEndpoints("blue:net", 1)
	stays := spec("stays", "h1", "blue/net")
	if err := c.CNICheck(t.Context(), stays); err != nil {
		t.Errorf("CHECK of what stays: %v", err)
	}
}
