package observe

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/model"
)

// paper takes lines, unless it fails.
type paper struct {
	mu    sync.Mutex
	lines []string
	err   error
}

func (p *paper) String() string { return "paper" }

func (p *paper) Write(_ context.Context, line []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.lines = append(p.lines, string(line))
	}
	return p.err
}

func (p *paper) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// read returns what was written, as events.
func (p *paper) read(t *testing.T) (events []api.FlowEvent) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		var e api.FlowEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// startFlowLog runs a flow log until stop is called.
func startFlowLog(ctx context.Context, p *paper) (l *flowLog, ws *watchers, problem func() string, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	standing := &conditions{log: slog.New(slog.DiscardHandler), texts: map[string]string{}, changed: func() {}}
	ws = newWatchers()
	l = &flowLog{sink: p, log: standing.log, tell: standing.set, watcher: ws.enter(&watcher{logs: true})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return l, ws, func() string { return standing.all()[problemFlowLog] }, func() {
		cancel()
		ws.close()
		<-done
	}
}

// The flow log has the events of rules with log and of audits, in the shape of
// netctl monitor --json; drops and connections it neither has nor asks for.
func TestFlowLogHasLoggedAndAuditedConnectionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{}
		l, ws, problem, stop := startFlowLog(t.Context(), p)
		if wanted, opts, _ := ws.wants(); !wanted || !opts.NoDrops || opts.Connections {
			t.Errorf("wants() = %v, %+v", wanted, opts)
		}
		var want []api.FlowEvent
		for _, kind := range []string{api.FlowLogged, api.FlowDrop, api.FlowWouldDeny, api.FlowConnection, api.FlowWouldAllow, api.FlowLost, api.FlowNote} {
			e := api.FlowEvent{Time: time.Now().UTC(), Host: "h1", Event: kind, Count: 7, Tenant: "blue", From: api.FlowPeer{Group: "blue:web", Labels: map[string]string{"app": "web"}}}
			ws.publish(e)
			if kind != api.FlowDrop && kind != api.FlowConnection {
				want = append(want, e)
			}
		}
		synctest.Wait()
		if diff := cmp.Diff(want, p.read(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if l.lines.Load() != 5 || l.watcher.lostTotal.Load() != 7 || !strings.Contains(problem(), "lines are lost") {
			t.Errorf("%d lines, %d missed, problem %q", l.lines.Load(), l.watcher.lostTotal.Load(), problem())
		}
		time.Sleep(flowLogQuiet + time.Second)
		if problem() != "" {
			t.Errorf("after a quiet minute: %q", problem())
		}
		l.noteMonitorError(errors.New("no switch"))
		if !strings.Contains(problem(), "no switch") {
			t.Errorf("without a monitor: %q", problem())
		}
		l.noteMonitorError(nil)
		stop()
	})
}

// Lines that cannot be written wait. Events without room are counted at once, in a line and
// as a problem. No caller waits, and the problem ends with its cause.
func TestUnwritableFlowLogLinesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &paper{err: errors.New("no space left")}
		l, ws, problem, stop := startFlowLog(t.Context(), p)
		logged := func() { ws.publish(api.FlowEvent{Event: api.FlowLogged, Count: 2}) }
		logged()
		synctest.Wait()
		if !strings.Contains(problem(), "no space left") || strings.Contains(problem(), "are lost,") {
			t.Errorf("problem %q", problem())
		}
		for range watcherQueue + 10 {
			logged()
		}
		synctest.Wait()
		if l.watcher.lostTotal.Load() != 20 || !strings.Contains(problem(), "lines are lost,") {
			t.Errorf("%d missed, problem %q", l.watcher.lostTotal.Load(), problem())
		}
		p.fail(nil)
		time.Sleep(flowLogRetry)
		synctest.Wait()
		logged()
		synctest.Wait()
		events := p.read(t)
		if n := len(events); n != watcherQueue+3 || events[n-2].Event != api.FlowLost || events[n-2].Count != 20 || l.watcher.lostTotal.Load() != 20 {
			t.Errorf("%d lines, the last %+v", n, events[max(0, n-2):])
		}
		if strings.Contains(problem(), "no space left") {
			t.Errorf("problem %q", problem())
		}
		stop()
	})
}

// The log ends soon, whatever the sink does, and events told before the end are
// written.
func TestFlowLogStopsSoonAndWritesEarlierEvents(t *testing.T) {
	for _, err := range []error{nil, errors.New("away")} {
		synctest.Test(t, func(t *testing.T) {
			p := &paper{err: err}
			_, ws, _, stop := startFlowLog(t.Context(), p)
			for range 100 {
				ws.publish(api.FlowEvent{Event: api.FlowLogged, Count: 1})
			}
			begin := time.Now()
			stop()
			if n := len(p.read(t)); n != 100 && err == nil || time.Since(begin) > 5*time.Second {
				t.Errorf("sink's error %v: %d lines after %s", err, n, time.Since(begin))
			}
		})
	}
}

// A line is never longer than the longest that goes through syslog, and netctl reads.
func TestFlowLogLinesAreBounded(t *testing.T) {
	long := strings.Repeat("x", model.MaxName)
	key := model.EndpointKey{Network: model.NetworkKey{Tenant: model.TenantName(long), Name: model.NetworkName(long)}, ID: model.EndpointID(strings.Repeat("x", 256))}
	labels := map[string]string{}
	for i := range model.MaxLabels {
		labels[strings.Repeat("\x01", 10)+string(rune('a'+i%26))+strings.Repeat("y", i)] = strings.Repeat("<", 20)
	}
	some, left := someLabels(labels)
	peer := api.FlowPeer{
		Endpoint: key.String(), Container: strings.Repeat("x", model.MaxEndpointText), Group: long + ":" + long, Address: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Port: 65535,
		MAC: "ff:ff:ff:ff:ff:ff", Labels: some, LabelsLeftOut: left,
	}
	rule := api.FlowRule{Direction: "out", Default: "kubernetes", Tier: "kubernetes", PoliciesLeftOut: 1 << 31}
	for range api.MaxFlowPolicies {
		rule.Policies = append(rule.Policies, long+":"+long)
	}
	b, err := json.Marshal(api.FlowEvent{
		Time: time.Now(), Host: strings.Repeat("h", 256), Event: api.FlowWouldAllow, Count: 1 << 63, Verdict: "allow", Tenant: long, Network: long, Protocol: "icmp6",
		From: peer, To: peer, Direction: "out", Decisions: []api.FlowRule{rule}, Audited: long + ":" + long,
	})
	if err != nil || len(b) > daemon.MaxLine || left == 0 {
		t.Errorf("%d bytes, %d labels left out, %v", len(b), left, err)
	}
}
