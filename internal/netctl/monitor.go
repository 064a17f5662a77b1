package netctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type monitorOptions struct {
	common
	request api.MonitorRequest
	count   int
}

func newMonitor(base common) *command {
	o := &monitorOptions{common: base}
	c := &command{
		name:  "monitor",
		asks:  &o.request,
		short: "Shows packets that are dropped and connections that begin, on all hosts, with the rule that decided, until interrupted",
		examples: []string{
			"netctl monitor --drops",
			"netctl monitor --from web --to blue:db",
			"netctl monitor --drops --host host1 --json",
		},
	}
	c.flags.Bool(&o.request.Drops, "drops, d", "drops only, no connections")
	c.flags.String(&o.request.From, "from", "[TENANT:]GROUP", "sent by a member of this group")
	c.flags.String(&o.request.To, "to", "[TENANT:]GROUP", "sent to a member of this group")
	c.flags.String(&o.request.Host, "host", "HOST", "seen on this host")
	c.flags.Int(&o.count, "count, n", "N", "end after so many packets; 0 = never")
	c.flags.Bool(&o.json, "json, j", "print a JSON object a line")
	c.flags.Bool(&o.quiet, "quiet, q", "print neither header nor notes").Adds = true
	c.run = bindRun(o, runMonitor, nil)
	return c
}

// errCountReached ends a monitor after --count lines.
var errCountReached = errors.New("enough")

func runMonitor(ctx context.Context, o *monitorOptions) error {
	if o.count < 0 {
		return flags.Usagef("flag --count \"%d\": must not be below 0", o.count)
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	t := &growingTable{w: o.out, width: []int{12, 8, 7, 6, 30, 30, 0}}
	shown := 0
	err = client.Monitor(ctx, o.request, func(e api.FlowEvent) error {
		var err error
		switch {
		case o.quiet && e.Event == api.FlowNote:
		case o.json:
			var b []byte
			if b, err = json.Marshal(e); err == nil {
				_, err = fmt.Fprintln(o.out, visibleJSON(string(b)))
			}
		case e.Event == api.FlowNote:
			_, err = fmt.Fprintf(o.stderr, "netctl: %s\n", strings.TrimPrefix(e.Host+": ", ": ")+e.Text)
		default:
			if !t.begun && !o.quiet {
				err = t.row("Time", "Host", "Verdict", "Proto", "From", "To", "Decided by")
			}
			err = errors.Join(err, t.row(flowRow(e)...))
		}
		if isPacket(e) {
			shown++
		}
		if err == nil && o.count > 0 && shown == o.count {
			err = errCountReached
		}
		return err
	})
	if errors.Is(err, errCountReached) || ctx.Err() != nil {
		err = nil // interrupting is how it ends
	}
	return err
}

// isPacket reports whether a line is of a packet, and not about the stream.
func isPacket(e api.FlowEvent) bool {
	switch e.Event {
	case api.FlowLost, api.FlowNote, api.FlowEnd:
		return false
	}
	return true
}

// growingTable prints rows as they come; a column that was too narrow stays as
// wide as it had to become.
type growingTable struct {
	w     io.Writer
	width []int
	begun bool
}

func (t *growingTable) row(cells ...string) error {
	var b strings.Builder
	t.begun = true
	for i, c := range visibleRow(cells) {
		n := utf8.RuneCountInString(c)
		t.width[i] = max(t.width[i], n)
		b.WriteString(c + strings.Repeat(" ", t.width[i]-n+2))
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(b.String(), " "))
	return err
}

// flowRow is an event as people read it.
func flowRow(e api.FlowEvent) []string {
	at := e.Time.Local().Format("15:04:05.000")
	if e.Event == api.FlowLost {
		if e.Count == 0 { // the host counts them for all tenants
			return []string{at, e.Host, "lost", "", "", "", "more packets than could be reported"}
		}
		return []string{at, e.Host, "lost", "", "", "", fmt.Sprintf("%d more packets than could be reported", e.Count)}
	}
	proto := cmp.Or(e.Protocol, "-")
	if e.ICMPType != nil {
		proto += "/" + strconv.Itoa(*e.ICMPType)
	}
	return []string{at, e.Host, verdictText(e), proto, peerText(e.From), peerText(e.To), decidedBy(e)}
}

// verdictText is what was decided about an event's packets, and about how many.
func verdictText(e api.FlowEvent) string {
	verdict := map[string]string{"allow": "allowed", "deny": "denied", "drop": "dropped"}[e.Verdict]
	switch e.Event {
	case api.FlowLogged:
		verdict = "log " + e.Verdict
	case api.FlowWouldDeny, api.FlowWouldAllow:
		verdict = e.Event
	}
	if e.Count > 1 {
		verdict += " x" + strconv.FormatUint(e.Count, 10)
	}
	return cmp.Or(verdict, e.Verdict)
}

// peerText is "group address:port container", as far as it is known.
func peerText(p api.FlowPeer) string {
	at := p.Address
	switch {
	case at == "":
		at = cmp.Or(p.MAC, "-")
	case p.Port != 0:
		at = net.JoinHostPort(at, strconv.Itoa(p.Port))
	}
	who := cmp.Or(p.Name, p.Container)
	if who == "" && p.Endpoint != "" {
		parts := strings.SplitN(p.Endpoint, ":", 3)
		who = parts[len(parts)-1]
	}
	if len(who) == 64 { // a container's id, as Docker shortens it
		who = who[:12]
	}
	return strings.Join(strings.Fields(p.Group+" "+at+" "+who), " ")
}

// dropReasons say what the data plane's reasons mean.
var dropReasons = map[string]string{
	"unknown-port":        "sent by a port that is not programmed",
	"unknown-network":     "tunnel key or tag of no network",
	"spoof":               "the sender is not who it says",
	"unknown-source":      "the source address is unknown",
	"unknown-destination": "the destination address is unknown",
	"invalid":             "belongs to no connection, or is malformed",
	"not-ip":              "neither ARP nor IP",
	"too-big":             "packet too big; the sender got an ICMP error",
	"ttl":                 "no hop is left; the sender got an ICMP error",
	"no-provider":         "the service has no backend for it",
}

// defaultText names the default that denied: a policy's, several policies', or a tier's.
func defaultText(d api.FlowRule) string {
	tier := "tier " + d.Default
	if len(d.Policies) == 0 {
		return "default of " + tier
	}
	names := d.Policies
	if d.PoliciesLeftOut > 0 {
		names = append(slices.Clone(names), fmt.Sprintf("%d more", d.PoliciesLeftOut))
	}
	kind := "policy"
	if len(names) > 1 {
		kind = "policies"
	}
	return fmt.Sprintf("default of %s %s (%s)", kind, strings.Join(names, ", "), tier)
}

// decisionTexts says who decided at each end.
func decisionTexts(all []api.FlowRule) (parts []string) {
	for _, d := range all {
		switch {
		case d.Hidden:
			parts = append(parts, d.Direction+": another tenant's policy")
		case d.Policy != "":
			parts = append(parts, fmt.Sprintf("%s: rule %s of policy %s", d.Direction, d.Rule, d.Policy))
		case d.Rule != "":
			parts = append(parts, fmt.Sprintf("%s: rule %s", d.Direction, d.Rule))
		case d.Default == "closed":
			parts = append(parts, d.Direction+": the policy is not loaded, so nothing passes")
		case d.Default != "":
			parts = append(parts, d.Direction+": "+defaultText(d))
		default:
			parts = append(parts, d.Direction+": no rule matches")
		}
	}
	return parts
}

func decidedBy(e api.FlowEvent) string {
	if e.Event == api.FlowDrop && e.Reason != "policy" {
		text := cmp.Or(dropReasons[e.Reason], e.Reason)
		if e.Reason == "spoof" || e.Tenant == "" {
			return text
		}
		return text + " (network " + e.Tenant + ":" + e.Network + ")"
	}
	parts := decisionTexts(e.Decisions)
	switch {
	case e.Audited != "":
		text := strings.Join(parts, "; ") + ", if " + e.Audited + " were enforced"
		if e.Living {
			text += " (lives already)"
		}
		return text
	case parts == nil:
		return "no policy"
	case e.Event == api.FlowDrop:
		return strings.Join(parts, "; ") + explainedBy(e)
	}
	return strings.Join(parts, "; ")
}

// explainedBy names the command that explains a denied connection.
func explainedBy(e api.FlowEvent) string {
	from, to, port := cmp.Or(e.From.Endpoint, e.From.Address), cmp.Or(e.To.Endpoint, e.To.Address), e.Protocol
	if from == "" || to == "" {
		return ""
	}
	if e.To.Port != 0 {
		port += "/" + strconv.Itoa(e.To.Port)
	}
	return fmt.Sprintf(" (netctl can %s %s %s)", from, to, port)
}
