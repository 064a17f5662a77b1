package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// row is one line of the ledger.
type row struct {
	name   string // of its report
	killed string // in users' words
	driver string // or bridged
	on     starter
	// between is how long a component is left alone from when it is back.
	between time.Duration
	// kill ends the component and starts it again; it returns when it is back, and when
	// it was killed. nil = nothing is killed, for comparison.
	kill func(ctx context.Context, w *world) (killed time.Time, err error)
	wants
}

// wants is what is wanted of a row beyond what is wanted of all: nothing lost, nothing
// left. Times are in milliseconds, 0 = not asked.
type wants struct {
	mayLose bool  // packets while the component is away
	refusal int64 // at most
}

// restartAfter is how long systemd waits before it starts netmaster and netplugin
// again (RestartSec in packaging/systemd).
const restartAfter = time.Second

// rows are the ledger, in the page's order.
func rows() (out []row) {
	dockerd := row{name: "dockerd", killed: "dockerd", on: withDocker, between: 4 * time.Second, kill: killDockerd}
	kubelet := row{name: "kubelet", killed: "kubelet", on: withKubelet, between: 10 * time.Second, kill: killKubelet}
	for _, driver := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
		out = append(out,
			row{name: "nothing", killed: "nothing, for comparison", driver: driver},
			row{name: "netmaster-leader", killed: "netmaster that leads, of 3", driver: driver, between: 2 * time.Second, kill: killMaster(true), wants: wants{refusal: 500}},
			row{name: "netmaster-follower", killed: "netmaster that follows, of 3", driver: driver, between: 2 * time.Second, kill: killMaster(false), wants: wants{refusal: 500}},
			row{name: "store-leader", killed: "etcd that leads, of 3", driver: driver, between: 3 * time.Second, kill: killStore(true), wants: wants{refusal: 3000}},
			row{name: "store-follower", killed: "etcd that follows, of 3", driver: driver, between: 3 * time.Second, kill: killStore(false), wants: wants{refusal: 3000}},
			row{name: "netplugin", killed: "netplugin", driver: driver, between: 2 * time.Second, kill: killAgent},
			dockerd.by(driver), kubelet.by(driver),
		)
	}
	out = append(out,
		row{name: "ovs-vswitchd", killed: "ovs-vswitchd", driver: testcluster.DriverOVS, between: 4 * time.Second, kill: killSwitch, wants: wants{mayLose: true}},
		row{name: "ovsdb-server", killed: "ovsdb-server", driver: testcluster.DriverOVS, between: 10 * time.Second, kill: killDatabase, wants: wants{mayLose: true}},
		dockerd.by(bridged), kubelet.by(bridged),
	)
	for i := range out {
		out[i].name += "-" + out[i].driver
		if out[i].on.start == nil {
			out[i].on = withCNI
		}
	}
	return out
}

// by is the row on a data plane.
func (r row) by(driver string) row {
	r.driver = driver
	return r
}

// plane is the data plane in users' words.
func (r row) plane() string {
	switch {
	case r.driver != bridged:
		return r.driver
	case strings.HasPrefix(r.name, "dockerd"):
		return "Docker's own bridge"
	}
	return "the stock bridge plugin"
}

// after waits, unless ctx ends before.
func after(ctx context.Context, d time.Duration) error {
	pause(ctx, d)
	return ctx.Err()
}

// numbered tells which of the lab's replicas an address is; 1 = the first.
func (w *world) numbered(urls, address string) (int, error) {
	host, _, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		return 0, err
	}
	for i, u := range strings.Split(urls, ",") {
		if strings.HasPrefix(u, "http://"+host+":") {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%s is none of %s", address, urls)
}

// numberedProcess is the n-th process of a kind.
func (w *world) numberedProcess(kind string, n int) *testcluster.Process {
	if n > 1 {
		kind = fmt.Sprint(kind, n)
	}
	return w.lab.Process(kind)
}

// killMaster kills the netmaster that leads, or one that does not, as soon as there
// are a leader and two more.
func killMaster(leads bool) func(context.Context, *world) (time.Time, error) {
	return func(ctx context.Context, w *world) (time.Time, error) {
		var n int
		if err := testcluster.Until(ctx, "three netmasters, one of which leads", func(ctx context.Context) error {
			s, err := w.status(ctx)
			if err != nil {
				return err
			}
			leaders, chosen := 0, ""
			for _, m := range s.Masters {
				if m.Role == "leader" {
					leaders++
				}
				if (m.Role == "leader") == leads {
					chosen = m.Address
				}
			}
			if len(s.Masters) != 3 || leaders != 1 {
				return fmt.Errorf("there are %d, and %d lead", len(s.Masters), leaders)
			}
			n, err = w.numbered(w.lab.Masters.MasterURLs(), chosen)
			return err
		}); err != nil {
			return time.Time{}, err
		}
		killed := time.Now()
		return killed, errors.Join(w.numberedProcess("netmaster", n).Kill(), after(ctx, restartAfter), w.lab.Masters.StartReplica(ctx, n))
	}
}

// killStore kills the member of the store that leads, or one that does not.
func killStore(leads bool) func(context.Context, *world) (time.Time, error) {
	return func(ctx context.Context, w *world) (time.Time, error) {
		var n int
		if err := testcluster.Until(ctx, "three members of the store, one of which leads", func(ctx context.Context) error {
			s, err := w.status(ctx)
			if err != nil {
				return err
			}
			chosen := ""
			for _, m := range s.Stores {
				if m.Error != "" {
					return errors.New(m.Error)
				}
				if m.Leads == leads {
					chosen = m.Address
				}
			}
			n, err = w.numbered(w.lab.Store.StoreURLs(), chosen)
			return err
		}); err != nil {
			return time.Time{}, err
		}
		killed := time.Now()
		return killed, errors.Join(w.numberedProcess("etcd", n).Kill(), w.lab.Store.StartMember(ctx, n))
	}
}

// turn is the host whose turn it is.
func (w *world) turn() *testcluster.Host {
	w.next++
	return w.lab.Hosts()[w.next%len(w.lab.Hosts())]
}

// killDockerd kills a host's Docker Engine, whose containers live on.
func killDockerd(ctx context.Context, w *world) (time.Time, error) {
	d, ok := w.runs.(*byDocker)
	if !ok {
		return time.Time{}, errors.New("there is no Docker")
	}
	e, killed := d.engines[w.turn().Name], time.Now()
	return killed, errors.Join(e.Kill(ctx), e.Start(ctx))
}

// killKubelet kills a node's kubelet, which is back when it says that it is healthy.
func killKubelet(ctx context.Context, w *world) (time.Time, error) {
	h, killed := w.turn(), time.Now()
	if err := errors.Join(h.Process("kubelet").Kill(), w.nodes.StartKubelet(h)); err != nil {
		return killed, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := h.NS.HTTP()
	defer client.CloseIdleConnections()
	return killed, testcluster.Until(ctx, "the kubelet of "+h.Name+" to be healthy", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10248/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

func killAgent(ctx context.Context, w *world) (time.Time, error) {
	h, killed := w.turn(), time.Now()
	return killed, errors.Join(h.KillAgent(), after(ctx, restartAfter), h.StartAgent(ctx))
}

func killSwitch(ctx context.Context, w *world) (time.Time, error) {
	h, killed := w.turn(), time.Now()
	return killed, h.Switch.RestartVswitchd(ctx)
}

func killDatabase(ctx context.Context, w *world) (time.Time, error) {
	h, killed := w.turn(), time.Now()
	return killed, errors.Join(w.lab.Process(h.Name+"-ovsdb-server").Kill(), h.Switch.StartOvsdb(ctx))
}
