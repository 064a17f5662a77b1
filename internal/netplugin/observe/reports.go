package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

const (
	// syncTimeout bounds what an inspection waits for the data plane's next pass.
	syncTimeout = 3 * time.Second
	// leftoverPause is between two looks at what is left over.
	leftoverPause = 500 * time.Millisecond
	// reportTime bounds one delivery of a report.
	reportTime = 2 * time.Minute
)

// deliverReport tells a netmaster once what it asks of this host.
func (a *Observer) deliverReport(ctx context.Context, client *api.Client, r cluster.MonitorRequest) {
	if r.Spread > 0 {
		_ = waiting.Pause(ctx, time.Duration(rand.IntN(r.Spread))*time.Millisecond) //nolint:gosec // only to spread
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	var err error
	switch r.Report {
	case cluster.ReportInspection:
		i := a.Inspect(ctx)
		i.Time = a.cfg.Now().UTC() // netmaster compares it with its own when this arrives
		err = a.deliverAnswer(ctx, client, r.ID, i)
	case cluster.ReportVerification:
		err = a.deliverAnswer(ctx, client, r.ID, a.Verify(ctx))
	case cluster.ReportTrace:
		err = a.deliverAnswer(ctx, client, r.ID, a.Trace(ctx, r.Trace))
	case cluster.ReportConnections:
		err = a.deliverAnswer(ctx, client, r.ID, a.Connections(ctx, r.Endpoints))
	case cluster.ReportBundle:
		err = a.deliverBundle(ctx, client, r.ID)
	default:
		err = fmt.Errorf("report %q is not known", r.Report)
	}
	if err != nil && ctx.Err() == nil && !api.IsNotFound(err) {
		a.cfg.Log.Warn("what a netmaster asks of this host cannot be delivered", "report", r.Report, "netmaster", r.Address, "error", err)
	}
}

func (a *Observer) deliverAnswer(ctx context.Context, client *api.Client, id string, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return client.DeliverReport(ctx, id, string(a.cfg.Host), bytes.NewReader(text))
}

func (a *Observer) deliverBundle(ctx context.Context, client *api.Client, id string) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := a.Pack(ctx, w)
		_ = w.CloseWithError(err) // never fails
		packed <- err
	}()
	err := client.DeliverReport(ctx, id, string(a.cfg.Host), r)
	_ = r.Close() // unblocks the packer
	if bad := <-packed; err == nil {
		err = bad
	}
	return err
}

// support is never nil.
func (c *Config) support() *supportbundle.Support {
	if c.Support == nil {
		return &supportbundle.Support{Version: c.Version}
	}
	return c.Support
}

// Pack writes all that people who search for a fault want of this host.
func (a *Observer) Pack(ctx context.Context, w io.Writer) error {
	h := a.Handler(a.cfg.More)
	parts := []supportbundle.Part{
		{Name: "inspection.json", Read: func(ctx context.Context) ([]byte, error) { return json.MarshalIndent(a.Inspect(ctx), "", "  ") }},
		supportbundle.Served("state.json", h, "/debug/state"),
		supportbundle.Served("health.json", h, "/healthz"),
		supportbundle.Served("driver.json", h, "/inspect/driver"), // the flows, or the maps
		supportbundle.Served("stats.json", h, "/svcstats"),
		supportbundle.Served("metrics.txt", h, "/metrics"),
		{Name: "attachments.json", Read: func(context.Context) ([]byte, error) {
			return json.MarshalIndent(a.cfg.Attachments.Entries(), "", "  ")
		}},
		{Name: "interfaces.txt", Read: func(context.Context) ([]byte, error) { return interfaces() }},
	}
	for _, pattern := range sortedKeys(a.cfg.More) {
		if path, ok := strings.CutPrefix(pattern, "GET /inspect/"); ok {
			parts = append(parts, supportbundle.Served(path+".json", h, "/inspect/"+path))
		}
	}
	return a.cfg.support().Pack(ctx, "host "+string(a.cfg.Host), parts, w)
}

func interfaces() ([]byte, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var b bytes.Buffer
	for _, i := range all {
		addrs, err := i.Addrs()
		fmt.Fprintf(&b, "%d %s mtu %d %s %s %v", i.Index, i.Name, i.MTU, i.HardwareAddr, i.Flags, addrs)
		if err != nil {
			fmt.Fprintf(&b, " (%v)", err)
		}
		b.WriteByte('\n')
	}
	return b.Bytes(), nil
}

// getLog answers GET /debug/log: the newest lines of this daemon's log, without secrets.
func (a *Observer) getLog(w http.ResponseWriter, _ *http.Request) {
	lines, err := a.cfg.support().Lines()
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(lines) // who does not listen any more needs no answer
}

// Inspect looks at this host for what is not as it should be. It has the data plane looked
// over once: what somebody else has changed there is put back, and told.
func (a *Observer) Inspect(ctx context.Context) api.HostInspection {
	out := api.HostInspection{Findings: []api.Finding{}, Machine: a.cfg.support().Machine()}
	out.Version = a.cfg.Version
	where := "host " + string(a.cfg.Host)
	add := func(c *condition.Condition, text string) {
		out.Findings = append(out.Findings, c.Finding(where, text))
	}
	if a.cfg.Can.Drifting != nil {
		if err := a.runSync(ctx); err != nil {
			add(condition.HostUnchecked, "the data plane was not looked over: "+err.Error())
		}
	}
	left, err := leftover(ctx, a.cfg)
	if err != nil {
		add(condition.HostUnchecked, err.Error())
	}
	for _, text := range left {
		add(condition.HostLeftover, text)
	}
	for _, c := range a.Health(ctx).Conditions {
		if !c.OK {
			out.Findings = append(out.Findings, condition.HostFinding(string(a.cfg.Host), c))
		}
	}
	return out
}

// runSync has the data plane looked over, and waits until that is done.
func (a *Observer) runSync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	before, _, _ := a.cfg.Reached.Totals()
	a.cfg.Agent.Kick("a comparison was asked for")
	err := a.cfg.Reached.Until(ctx, func(statemirror.SyncStatus) (bool, error) {
		now, _, _ := a.cfg.Reached.Totals()
		return now > before, nil
	})
	if err != nil {
		return fmt.Errorf("no run within %s: %w", syncTimeout, err)
	}
	return nil
}

// leftover are interfaces of this host's that no attachment has. One that is just being
// taken away is not told: what is found is looked at again.
func leftover(ctx context.Context, cfg Config) (out []string, err error) {
	var before map[string]bool
	for {
		veths, err := vethpair.List()
		if err != nil {
			return nil, fmt.Errorf("its interfaces cannot be listed: %w", err)
		}
		known, now := map[string]bool{}, map[string]bool{}
		for _, e := range cfg.Attachments.Entries() {
			known[e.HostIf] = true
		}
		out = nil
		for _, v := range veths {
			if known[v.Name] || !attachment.IsOurs(cfg.Host, v) {
				continue
			}
			now[v.Name] = true
			if before[v.Name] {
				out = append(out, fmt.Sprintf("interface %s (%s) is left over: no attachment has it", v.Name, v.Alias))
			}
		}
		if before != nil || len(now) == 0 {
			return out, nil
		}
		before = now
		if err := waiting.Pause(ctx, leftoverPause); err != nil {
			return nil, err
		}
	}
}

// More is what the inspection answers beside the Observer's own.
func (a *Observer) More() map[string]http.HandlerFunc { return a.cfg.More }
