package fabric

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// TestWhatOthersTakeFromRoutingIsPutBackAtOnce: a route or the table of nftables that
// somebody else deletes is there again long before the next look at everything.
func TestWhatOthersTakeFromRoutingIsPutBackAtOnce(t *testing.T) {
	b := newBench(t, "50.1.1.200/24")
	b.in.Settings = settings()
	port(&b.in.Desired, 1, network(1, "blue", model.EncapVLAN))
	b.start()
	b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{"10.50.0.0/16": "50.1.1.200", "10.51.0.0/16": "50.1.1.200"})
	want := map[string]string{"10.50.0.0/16": "50.1.1.200", "10.51.0.0/16": "50.1.1.200"}
	b.wantRoutes(want)
	owned := b.owned()

	ctx, cancel := context.WithCancel(t.Context())
	listens, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- hoststack.New(slog.New(slog.DiscardHandler), false, nil, hoststack.NoRepairs).Watch(ctx, hoststack.Watching{
			Changed: func() {
				select {
				case listens <- struct{}{}:
				default:
				}
			},
			Firewall: func() {}, Table: func(string) { b.router.LostTable() }, Route: b.router.LostRoute,
		})
	}()
	<-listens
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch() = %v", err)
		}
	}()
	for _, x := range []struct {
		what string
		do   func() error
	}{
		{"a route", func() error {
			_, dst, err := net.ParseCIDR("10.50.0.0/16")
			if err != nil {
				return err
			}
			return netlink.RouteDel(&netlink.Route{Dst: dst, Protocol: 198, Priority: 20})
		}},
		{"the table", func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: hoststack.FabricTable})
			return c.Flush()
		}},
	} {
		if err := bySomebodyElse(x.do); err != nil {
			t.Fatalf("%s: %v", x.what, err)
		}
		began := time.Now()
		b.wantRoutes(want)
		b.until("containers' addresses", func() (bool, string) { return maps.Equal(b.owned(), owned), "" })
		if took := time.Since(began); took > rereadInterval/4 {
			t.Errorf("%s is put back after %v", x.what, took)
		}
	}
}

// bySomebodyElse has the kernel take what do does for another program's doing.
func bySomebodyElse(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := os.WriteFile("/proc/thread-self/comm", []byte("somebody"), 0); err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}
