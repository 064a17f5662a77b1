package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	pathMonitor = "/api/v1/monitor"
	pathDeliver = "/plugin/monitor/"
	// MediaLines is the media type of a stream of JSON values, one a line; empty
	// lines show that the sender lives.
	MediaLines = "application/x-ndjson"
	// MonitorKeepAlive is how often a sender of such a stream that has nothing to say
	// sends an empty line.
	MonitorKeepAlive = 15 * time.Second
	// MaxMonitorLine is the longest line of such a stream, in bytes.
	MaxMonitorLine = 64 << 10
)

// MonitorRequest says what GET /api/v1/monitor streams.
type MonitorRequest struct {
	Drops bool   // drops only; else also connections that begin, are logged, or would be judged otherwise
	From  string // endpoint group of the sender, as group or tenant:group; empty = any
	To    string // endpoint group of the receiver, likewise
	Host  string // the host that tells; empty = all
}

// Query returns the request as the query of a URL.
func (r MonitorRequest) Query() url.Values {
	q := url.Values{}
	if r.Drops {
		q.Set("drops", "true")
	}
	for k, v := range map[string]string{"from": r.From, "to": r.To, "host": r.Host} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return q
}

// The values of FlowEvent.Event.
const (
	FlowDrop       = "drop"        // a packet that went nowhere
	FlowConnection = "connection"  // the first packet of a connection that was let through
	FlowLogged     = "logged"      // a new connection met a rule with log; Verdict is the rule's action
	FlowWouldDeny  = "would-deny"  // a connection that a policy let through, and an audited one would deny
	FlowWouldAllow = "would-allow" // a connection that a policy denied, and an audited one would let through
	FlowLost       = "lost"        // Count packets that could not be told of
	FlowNote       = "note"        // Text for people, of a host or of netmaster
	FlowCounts     = "counts"      // to a monitor that asked for counts of a service: Served of the provider To
	FlowCounted    = "counted"     // the end of the list; Text, if any, says why nothing is counted
	FlowEnd        = "end"         // the last line of a stream that netmaster ends; Text says why, and Reason is KindUnauthorized if the token is accepted no more
)

// FlowEvent is one line of a monitor's stream.
type FlowEvent struct {
	Time      time.Time  `json:"time"` // by the host's clock
	Host      string     `json:"host,omitempty"`
	Event     string     `json:"event"`
	Count     uint64     `json:"count,omitempty"`   // packets that it stands for, alike but for source port and time
	Verdict   string     `json:"verdict,omitempty"` // deny (by policy), drop (for another reason), allow; of logged also pass: the next tier decides
	Reason    string     `json:"reason,omitempty"`  // of a drop: policy, spoof, unknown-source, ...
	Tenant    string     `json:"tenant,omitempty"`
	Network   string     `json:"network,omitempty"`
	Protocol  string     `json:"protocol,omitempty"` // tcp, udp, icmp, icmp6, sctp, a number, or arp; empty = not IP
	ICMPType  *int       `json:"icmpType,omitempty"`
	From      FlowPeer   `json:"from,omitzero"`
	To        FlowPeer   `json:"to,omitzero"`
	Direction string     `json:"direction,omitempty"` // of the policy that denied or logged, or that is audited: in, out
	Decisions []FlowRule `json:"decisions,omitempty"` // who decided; of a connection at both ends, as far as they are on the host
	Audited   string     `json:"audited,omitempty"`   // of would-deny and would-allow: the audited policy; decisions are its decisions
	Living    bool       `json:"living,omitempty"`    // of would-deny and would-allow: of connections (Count) that live, told once when the audit begins or changes
	Text      string     `json:"text,omitempty"`
	Served    *Served    `json:"served,omitempty"` // of counts
}

// FlowPeer is one end of a packet's way.
type FlowPeer struct {
	Endpoint  string `json:"endpoint,omitempty"`  // tenant:network:id
	Container string `json:"container,omitempty"` // its id
	Name      string `json:"name,omitempty"`      // of the container or pod, as people know it
	Group     string `json:"group,omitempty"`     // tenant:group
	Address   string `json:"address,omitempty"`
	Port      int    `json:"port,omitempty"`
	MAC       string `json:"mac,omitempty"`
	// Labels are the endpoint's, the first by name, as many as fit MaxFlowLabels
	// bytes of JSON; LabelsLeftOut counts the others.
	Labels        map[string]string `json:"labels,omitempty"`
	LabelsLeftOut int               `json:"labelsLeftOut,omitempty"`
}

// MaxFlowLabels bounds FlowPeer.Labels.
const MaxFlowLabels = 1536

// MaxFlowPolicies bounds FlowRule.Policies.
const MaxFlowPolicies = 4

// FlowRule is who decided at one end.
type FlowRule struct {
	Direction string `json:"direction"`        // out: policy of the sender, in: of the receiver
	Rule      string `json:"rule,omitempty"`   // the rule's name in its policy; empty = none matched
	Policy    string `json:"policy,omitempty"` // tenant:policy
	Tier      string `json:"tier,omitempty"`   // of the rule's policy, while the host knows it; or whose default denied
	// Default says whose default denied where no rule matched: the tier admin,
	// contiv, kubernetes or baseline, or closed: the port's policy is not known (yet).
	Default string `json:"default,omitempty"`
	// Policies are those whose default denied (tenant:policy), MaxFlowPolicies at most;
	// PoliciesLeftOut counts the others.
	Policies        []string `json:"policies,omitempty"`
	PoliciesLeftOut int      `json:"policiesLeftOut,omitempty"`
	// Hidden: the policy is of a tenant that the viewer may not read.
	Hidden bool `json:"hidden,omitempty"`
}

// SetDefault says that the default of a tier decided, and of which policies it is, separated by
// commas; "" = of none.
func (r *FlowRule) SetDefault(tier, policies string) {
	r.Default, r.Tier = tier, tier
	if policies != "" {
		all := strings.Split(policies, ",")
		r.Policies = all[:min(len(all), MaxFlowPolicies)]
		r.PoliciesLeftOut = len(all) - len(r.Policies)
	}
}

// Monitor streams what data planes drop and which connections begin, until ctx
// ends, fn fails or netmaster ends it, and returns why: ctx's error, fn's, or
// an *Error with the text of netmaster's last line.
func (c *Client) Monitor(ctx context.Context, req MonitorRequest, fn func(FlowEvent) error) error {
	path := pathMonitor
	if q := req.Query().Encode(); q != "" {
		path += "?" + q
	}
	answered, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(c.timeout, cancel)
	resp, err := c.open(answered, http.MethodGet, path, nil)
	if !late.Stop() && ctx.Err() == nil {
		return &UnreachableError{URLs: c.URLs(), Err: fmt.Errorf("no answer within %s", c.timeout)}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, MaxMonitorLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e FlowEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read events: a line is not netmaster's JSON: %w", err)
		}
		if e.Event == FlowEnd && e.Reason == KindUnauthorized {
			return &Error{Status: http.StatusUnauthorized, Kind: e.Reason, Message: e.Text}
		}
		if e.Event == FlowEnd {
			return &Error{Status: http.StatusServiceUnavailable, Message: e.Text}
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &UnreachableError{URLs: c.URLs(), Err: errors.Join(errors.New("the stream of events broke"), lines.Err())}
}

// DeliverFlows hands a host's events to the monitor of that id, until events
// ends, ctx ends, or netmaster does not want more; a 404 says that there is no
// such monitor (any more).
func (c *Client) DeliverFlows(ctx context.Context, id, host string, events <-chan FlowEvent) error {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = w.CloseWithError(sendLines(ctx, w, events)) // never fails
	}()
	defer func() {
		cancel()
		_ = r.Close() // unblocks the sender
		<-sent
	}()
	resp, err := c.open(ctx, http.MethodPost, pathDeliver+url.PathEscape(id)+"?host="+url.QueryEscape(host), r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// sendLines writes events as lines, and empty ones in between.
func sendLines(ctx context.Context, w io.Writer, events <-chan FlowEvent) error {
	beat := time.NewTicker(MonitorKeepAlive)
	defer beat.Stop()
	for {
		line := []byte("\n")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-events:
			if !ok {
				return nil
			}
			var err error
			if line, err = json.Marshal(e); err != nil {
				return err
			}
			line = append(line, '\n')
		case <-beat.C:
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}

// open begins an exchange without end with the first netmaster that answers, and not with
// 503. A body can be sent once, so only a netmaster that cannot be reached is passed over
// then.
func (c *Client) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	var last error
	first := int(c.current.Load())
	for i := range c.bases {
		n := (first + i) % len(c.bases)
		var r io.Reader
		if body != nil {
			r = struct{ io.Reader }{body} // which the transport must not close
		}
		req, err := http.NewRequestWithContext(ctx, method, c.bases[n].String()+path, r)
		if err != nil {
			return nil, fmt.Errorf("build request: %w", err)
		}
		req.Header.Set("Accept", "application/json, "+MediaLines) // refusals, and what is asked for
		c.sign(req)
		if body != nil {
			req.Header.Set("Content-Type", MediaLines)
		}
		resp, err := c.http.Do(req)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = resp.Body.Close()
			}
			return nil, ctx.Err()
		case err == nil && resp.StatusCode == http.StatusOK:
			c.current.Store(int64(n))
			return resp, nil
		case err == nil:
			text, _ := io.ReadAll(io.LimitReader(resp.Body, MaxMonitorLine)) // as far as it came
			_ = resp.Body.Close()
			refusal := readError(resp.StatusCode, resp.Header.Get("Content-Type"), text)
			if body != nil || refusal.Status != http.StatusServiceUnavailable {
				return nil, refusal
			}
			last = refusal
			continue
		case body != nil && !isDialError(err):
			return nil, c.unreachable(err)
		}
		if _, answered := errors.AsType[*Error](last); !answered {
			last = err
		}
	}
	return nil, c.unreachable(last)
}
