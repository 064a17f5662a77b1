//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// TestHostTakesBackAnInterfaceThatCutsItOff: a host that loses its netmaster with an
// interface on an infra network takes the interface down, though its netplugin is restarted
// meanwhile; reaches netmaster again; and says why the interface stays down, also after
// another restart, until the network is deleted.
func TestHostTakesBackAnInterfaceThatCutsItOff(t *testing.T) {
	shared(t)
	onOne(t, []string{testcluster.DriverEBPF, testcluster.DriverOVS}, func(t *testing.T, driver string) {
		c := up(t, driver, "life", 1)
		h := c.host("h1")
		wait := func(what string, is func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := testcluster.Until(ctx, what, is); err != nil {
				t.Fatal(err)
			}
		}
		master, err := url.Parse(c.Masters.MasterURL())
		if err != nil {
			t.Fatal(err)
		}
		// Netplugin refuses interfaces on networks with addresses of netmasters. Something else
		// on the host leads there by this one: the route comes and goes with the interface.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		hook := h.NS.Command(ctx, "sh", "-c", "until ip route add "+master.Hostname()+" via 10.1.9.254 dev stor 2>/dev/null; do :; done")
		if err := hook.Start(); err != nil {
			t.Fatal(err)
		}
		c.netctl("network create -n infra -e vxlan -s 10.1.9.0/24 stor")
		if err := hook.Wait(); err != nil {
			t.Fatal(err)
		}
		wait("the change to be on disk", func(context.Context) error {
			data, err := os.ReadFile(filepath.Join(h.StateDir(), "host-changes.json"))
			if err == nil && !strings.Contains(string(data), "default:stor") {
				err = fmt.Errorf("it has %s", data)
			}
			return err
		})
		down := func(is bool) error {
			out, err := h.Run(t.Context(), "ip", "-o", "link", "show", "stor")
			if err == nil && strings.Contains(out, ",UP") == is {
				err = errors.New("it is " + out)
			}
			return err
		}
		if err := down(false); err != nil {
			t.Fatal(err)
		}
		rolledBack := func(when string) {
			t.Helper()
			wait(when+": the doctor to tell", func(ctx context.Context) error {
				out, err := c.Masters.Netctl(ctx, "doctor")
				if !strings.Contains(out, "infra network default:stor") || !strings.Contains(out, "without it one does") {
					return fmt.Errorf("it says %s: %w", out, errors.Join(err, errors.New("not that")))
				}
				return nil
			})
			if err := down(true); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		if err := h.RestartAgent(t.Context()); err != nil { // it is ready once a netmaster answers
			t.Fatal(err)
		}
		rolledBack("restarted during the outage")
		if err := h.RestartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		rolledBack("restarted later")
		c.netctl("network rm stor")
		wait("nothing to be wrong", func(ctx context.Context) error {
			out, err := c.Masters.Netctl(ctx, "doctor")
			if strings.Contains(out, "default:stor") {
				err = errors.New(out)
			}
			return err
		})
	})
}
