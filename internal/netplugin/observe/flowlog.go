package observe

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// FlowSink takes the lines of a flow log. Write waits for some seconds at most; a
// line for which it fails is tried again.
type FlowSink interface {
	Write(ctx context.Context, line []byte) error
	String() string // names it to people
}

const (
	flowLogRetry = time.Second     // how long a sink that fails is left alone
	flowLogQuiet = time.Minute     // how long after the last loss losses are a problem
	flowLogLast  = 2 * time.Second // how long the end waits for what is still to be written
	flowLogText  = 1024            // bytes of a note that a line has room for
)

// problemFlowLog is the object of the flow log's problems.
const problemFlowLog = "flow log"

// flowLog writes the events of rules with log and of audits to a sink. It watches
// as anybody does, so that it holds nothing up: events for which the sink is too
// slow wait in the watcher's queue, and then count as lost.
type flowLog struct {
	sink    FlowSink
	log     *slog.Logger
	tell    func(object, text string) // a problem of the host
	watcher *watcher
	lines   atomic.Uint64

	mu       sync.Mutex
	problems [flowLogProblems]string
}

// What can be wrong with a flow log.
const (
	notMonitored = iota
	notWritten
	linesLost
	flowLogProblems
)

// setProblem tells one thing that is wrong; "" = it is not wrong any more.
func (l *flowLog) setProblem(what int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problems[what] == text {
		return
	}
	l.problems[what] = text
	var all []string
	for _, w := range l.problems {
		if w != "" {
			all = append(all, w)
		}
	}
	l.tell(problemFlowLog, strings.Join(all, "; "))
}

// noteMonitorError hears whether the data plane's events are followed: err says why not.
// Nothing is to be done for a nil log.
func (l *flowLog) noteMonitorError(err error) {
	switch {
	case l == nil:
	case err != nil:
		l.setProblem(notMonitored, "connections are not reported, since the data plane cannot be monitored: "+err.Error())
	default:
		l.setProblem(notMonitored, "")
	}
}

// run writes until the watchers are closed. After ctx's end it writes what is there
// already, for a short while.
func (l *flowLog) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { l.watchLosses(ctx) })
	wctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flowLogLast, cancel) })()
	unwritten := 0
	for e := range l.watcher.events {
		if unwritten > 0 || !l.write(ctx, wctx, e) {
			unwritten++
		}
	}
	if unwritten > 0 {
		l.log.Warn("the flow log ends without its last lines", "lines", unwritten)
	}
}

// write writes one event, however often it has to be tried; false = not before the end.
func (l *flowLog) write(ctx, wctx context.Context, e api.FlowEvent) bool {
	if len(e.Text) > flowLogText {
		e.Text = strings.ToValidUTF8(e.Text[:flowLogText], "")
	}
	line, err := json.Marshal(e)
	if err != nil {
		l.log.Error("an event cannot be written", "error", err)
		l.watcher.countUndelivered(1)
		return true
	}
	for {
		err := l.sink.Write(wctx, line)
		if err == nil {
			l.lines.Add(1)
			l.setProblem(notWritten, "")
			return true
		}
		l.setProblem(notWritten, "lines wait, and are lost when there are too many: "+err.Error())
		if waiting.Pause(ctx, flowLogRetry) != nil {
			return false
		}
	}
}

// watchLosses tells of losses when they begin, and when they have ended.
func (l *flowLog) watchLosses(ctx context.Context) {
	quiet := time.NewTimer(flowLogQuiet)
	defer quiet.Stop()
	for {
		select {
		case <-l.watcher.losses:
			quiet.Reset(flowLogQuiet)
			l.setProblem(linesLost, "lines are lost, since there are more events than room; lines of event lost count them, and contiv_netplugin_flow_log_lost_total")
		case <-quiet.C:
			l.setProblem(linesLost, "")
		case <-ctx.Done():
			return
		}
	}
}

// collectors are the flow log's metrics, which stay zero without one.
func (l *flowLog) collectors() []prometheus.Collector {
	count := func(name, help string, of func() *atomic.Uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "contiv_netplugin_flow_log_" + name, Help: help}, func() float64 {
			if l == nil {
				return 0
			}
			return float64(of().Load())
		})
	}
	return []prometheus.Collector{
		count("lines_total", "Lines written to the flow log; 0 without --flow-log.", func() *atomic.Uint64 { return &l.lines }),
		count("lost_total", "Packets missing from the flow log; 0 without --flow-log.", func() *atomic.Uint64 { return &l.watcher.lostTotal }),
	}
}
