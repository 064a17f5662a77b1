package netctl

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type canOptions struct {
	common
	request api.ReachabilityRequest
}

const sidesUsage = "endpoint, pod:NAMESPACE/NAME, group:, network:, namespace:, service:, host: or tenant:NAME, KEY=VALUE, address, range, internet, any"

func newCan(base common) *command {
	o := &canOptions{common: base}
	c := &command{
		name:  "can",
		asks:  &o.request,
		short: "Answer whether FROM may open connections to TO (by PROTOCOL/PORT), and which rules decide",
		examples: []string{
			"netctl can web1 db1 tcp/5432",
			"netctl can group:web service:db --tenant blue",
			"netctl can --to db1",
			"netctl can --from app=web --port tcp/443",
		},
		optional: []string{"FROM", "TO", "PORT"},
	}
	c.flags.String(&o.request.From, "from", "FROM", "to whom does it have access: "+sidesUsage)
	c.flags.String(&o.request.To, "to", "TO", "who has access to it: the same as with --from")
	c.flags.String(&o.request.Port, "port", "PROTOCOL/PORT", "by these ports only: tcp, tcp/443, udp/1000-2000, icmp")
	o.tenantFlag(&c.flags)
	c.flags.Bool(&o.json, "json, j", "print the answer as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", fmt.Sprintf("print nothing; the exit code is %d unless all of it is allowed", ExitDenied))
	c.run = func(ctx context.Context, args []string) error { return runCan(ctx, o, args) }
	return c
}

func runCan(ctx context.Context, o *canOptions, args []string) error {
	r := o.request
	all := false // one side is everything
	switch {
	case len(args) >= 2 && r.From == "" && r.To == "" && (len(args) == 2 || r.Port == ""):
		if r.From, r.To = args[0], args[1]; len(args) == 3 {
			r.Port = args[2]
		}
	case len(args) > 0 || (r.From == "") == (r.To == ""):
		return flags.Usagef("name FROM and TO, or one of --from and --to")
	case r.From == "":
		r.From, all = "any", true
	default:
		r.To, all = "any", true
	}
	r.Tenant = o.tenant
	client, err := o.client()
	if err != nil {
		return err
	}
	answer, err := client.Reachability(ctx, r)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		err = printJSON(o.out, answer)
	case !o.quiet:
		err = o.show(answer, all)
	}
	if err == nil && answer.Verdict != api.ReachYes && !all {
		err = errDenied
	}
	return err
}

// reachRow is one line of the table.
type reachRow struct {
	api.ReachableParts
	part api.ReachablePart
}

var reachRows = columns[reachRow]{
	header: []string{"From", "To", "Allowed", "Ports", "Route", "Decided by"},
	row: func(r reachRow) []string {
		return []string{someOf(r.From), r.destination(), yesNo(r.part.Allowed), strings.Join(r.part.Ports, ","), r.route(), strings.Join(decisionTexts(r.part.Decisions), "; ")}
	},
}

func (r reachRow) destination() string {
	switch {
	case r.Published != "":
		return fmt.Sprintf("%s by port %s", someOf(r.To), r.Published)
	case r.Service == "":
		return someOf(r.To)
	}
	return fmt.Sprintf("%s of service %s (%s)", someOf(r.To), r.Service, r.Frontend)
}

func (r reachRow) route() string {
	text := r.Route
	if r.Missing != "" {
		text = r.Missing
	}
	if len(r.Families) == 1 {
		text += " " + r.Families[0]
	}
	return text
}

// someOf names the first few of some ends.
func someOf(all []string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], " "), len(all)-most)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// show prints the answer; of a question about all only what is allowed.
func (o *canOptions) show(answer api.Reachability, all bool) error {
	var rows []reachRow
	for _, c := range answer.Connections {
		if len(c.Parts) == 0 {
			c.Parts = []api.ReachablePart{{}}
		}
		for _, p := range c.Parts {
			if p.Allowed || !all {
				rows = append(rows, reachRow{c, p})
			}
		}
	}
	if err := noteUnconfirmed(o.stderr, answer.Unconfirmed); err != nil {
		return err
	}
	switch {
	case !all:
		fmt.Fprintf(o.out, "%s: %s to %s%s\n", answer.Verdict, answer.From, answer.To, portSuffix(answer.Port))
		if len(rows) == 0 {
			return nil
		}
		fmt.Fprintln(o.out)
	case len(rows) == 0:
		_, err := fmt.Fprintln(o.out, "No connection is allowed.")
		return err
	}
	return o.printItems(reachRows.items(rows...))
}

// noteUnconfirmed says that changes that wait to be confirmed are part of an answer.
func noteUnconfirmed(w io.Writer, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "note: the answer includes unconfirmed changes, which are in force (netctl pending): %s\n", strings.Join(ids, ", "))
	return err
}

func portSuffix(port string) string {
	_, err := strconv.Atoi(port)
	switch {
	case port == "":
		return ""
	case err == nil:
		return " by IP protocol " + port + " (not port " + port + ": write tcp/" + port + ")"
	}
	return " by " + port
}
