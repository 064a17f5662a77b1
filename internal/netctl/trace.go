package netctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

type traceOptions struct {
	common
	request api.TraceRequest
}

func newTrace(base common) *command {
	o := &traceOptions{common: base}
	c := &command{
		name:     "trace",
		asks:     &o.request,
		short:    "Send one packet from endpoint FROM to TO, and show what each host decided about it beside what is expected",
		examples: []string{"netctl trace web1 db1 tcp/5432", "netctl trace web1 service:db tcp/5432 --tenant blue", "netctl trace web1 10.1.1.9 icmp"},
		args:     []string{"FROM", "TO", "PORT"},
	}
	o.tenantFlag(&c.flags)
	c.flags.Bool(&o.json, "json, j", "print the answer as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", fmt.Sprintf("print nothing; the exit code is %d unless the packet arrived or was answered", ExitDenied))
	c.run = func(ctx context.Context, args []string) error { return runTrace(ctx, o, args) }
	return c
}

func runTrace(ctx context.Context, o *traceOptions, args []string) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	o.request.From, o.request.To, o.request.Port, o.request.Tenant = args[0], args[1], args[2], o.tenant
	answer, err := client.Trace(ctx, o.request)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		err = printJSON(o.out, answer)
	case !o.quiet:
		err = o.show(answer)
	}
	if err == nil && answer.Verdict != api.ReachYes {
		err = errNotArrived
	}
	return err
}

// traceStep is one line of the table.
type traceStep struct{ host, step, expected, measured string }

var traceSteps = columns[traceStep]{
	header: []string{"Host", "Step", "Expected", "Measured"},
	row:    func(s traceStep) []string { return []string{s.host, s.step, s.expected, s.measured} },
}

func (o *traceOptions) show(t api.Trace) error {
	if err := o.printItems(traceSteps.items(stepsOf(t)...)); err != nil {
		return err
	}
	for _, h := range t.Hosts {
		for _, text := range h.Problems {
			if _, err := fmt.Fprintf(o.out, "%s: %s\n", h.Host, text); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(o.out, "\n%s\n", traceSentence(t))
	return err
}

func traceSentence(t api.Trace) string {
	packet := fmt.Sprintf("The packet of %s from %s to %s", t.Protocol, t.Source, t.Destination)
	switch {
	case t.Verdict == api.TraceUnknown:
		return packet + " was not answered, and no host could look for it where it leads. The expected verdict is " + t.Expected.Verdict + "."
	case t.Agrees && t.Verdict == api.ReachYes:
		return packet + " arrived, as expected."
	case t.Agrees:
		return packet + " did not arrive, as expected."
	case t.Verdict == api.ReachYes:
		return packet + " arrived, which policies and routes do not allow: run netctl verify."
	}
	return packet + " did not arrive, although policies and routes allow it: run netctl doctor, and look for a firewall of the host or the container."
}

// stepsOf are the steps of a packet, from the sender on.
func stepsOf(t api.Trace) (out []traceStep) {
	var expected []string // who decides, at which end
	gap := ""
	for _, c := range t.Expected.Connections {
		if c.Missing != "" {
			gap = "no route: " + c.Missing
		}
		for _, p := range c.Parts {
			for _, text := range decisionTexts(p.Decisions) {
				if !slices.Contains(expected, text) {
					expected = append(expected, text)
				}
			}
		}
	}
	arrives := map[string]string{api.ReachYes: "yes", api.ReachNo: "no", api.ReachPartly: "at some"}[t.Expected.Verdict]
	for i, h := range t.Hosts {
		if i == 0 {
			out = append(out, traceStep{h.Host, "sent", "yes", yesNo(h.Sent)})
		}
		own := slices.DeleteFunc(slices.Clone(expected), func(text string) bool { // a host decides for its own end
			return (i > 0 || !strings.HasPrefix(text, "out: ")) && (len(h.Watched) == 0 || !strings.HasPrefix(text, "in: "))
		})
		for _, e := range h.Events {
			out = append(out, traceStep{h.Host, "data plane", cmp.Or(strings.Join(own, "; "), gap, "no policy"), verdictText(e) + ": " + decidedBy(e)})
		}
		for _, at := range h.Watched {
			out = append(out, traceStep{h.Host, "arrived at " + at, arrives, yesNo(slices.Contains(h.Arrived, at))})
		}
	}
	if len(t.Hosts) > 0 && t.Hosts[0].Sent {
		out = append(out, traceStep{t.Hosts[0].Host, "answer", "", cmp.Or(t.Hosts[0].Answer, "none")})
	}
	return out
}
