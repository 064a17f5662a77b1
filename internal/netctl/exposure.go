package netctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

type exposureOptions struct {
	common
	request api.ExposureRequest
}

func newExposure(base common) *command {
	o := &exposureOptions{common: base}
	c := &command{
		name:     "exposure",
		asks:     &o.request,
		short:    "Show what clients outside, and other tenants, may open connections to, by which way, and which rules decide",
		examples: []string{"netctl exposure", "netctl exposure tenant:blue --port tcp", "netctl exposure service:shop"},
		optional: []string{"TO"},
	}
	c.flags.String(&o.request.Port, "port", "PROTOCOL/PORT", "by these ports only: tcp, tcp/443, udp/1000-2000, icmp")
	o.tenantFlag(&c.flags)
	c.flags.Bool(&o.json, "json, j", "print the answer as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", quietUsage)
	c.run = func(ctx context.Context, args []string) error { return runExposure(ctx, o, args) }
	return c
}

func runExposure(ctx context.Context, o *exposureOptions, args []string) error {
	r := o.request
	if len(args) > 0 {
		r.To = args[0]
	}
	r.Tenant = o.tenant
	client, err := o.client()
	if err != nil {
		return err
	}
	x, err := client.Exposure(ctx, r)
	switch {
	case err != nil:
		return err
	case o.json || o.quiet:
		return o.showJSON(x)
	}
	return o.show(x)
}

// exposureRows has no column for what is denied: an exposure lists what is allowed.
var exposureRows = columns[reachRow]{
	header: []string{"To", "From", "By", "Ports", "Decided by"},
	row: func(r reachRow) []string {
		return []string{someOf(r.To), r.clients(), r.opening(), strings.Join(r.part.Ports, ","), strings.Join(decisionTexts(r.part.Decisions), "; ")}
	},
}

// clients names the sources; all addresses of a family are the internet.
func (r reachRow) clients() string {
	if len(r.From) == 1 && (r.From[0] == "0.0.0.0/0" || r.From[0] == "::/0") {
		return "internet " + r.Families[0]
	}
	return someOf(r.From)
}

// opening says by which way clients get there.
func (r reachRow) opening() string {
	switch {
	case r.Published != "":
		return "port " + r.Published
	case r.Service != "":
		return fmt.Sprintf("%s %s of service %s", r.Opening, r.Frontend, r.Service)
	case r.Opening != "":
		return r.Opening
	}
	return r.Route
}

func (o *exposureOptions) show(x api.Exposure) error {
	var rows []reachRow
	for _, c := range x.Connections {
		for _, p := range c.Parts {
			rows = append(rows, reachRow{c, p})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(o.out, "Nothing is open to clients outside or to other tenants.")
	} else if err := o.printItems(exposureRows.items(rows...)); err != nil {
		return err
	}
	if x.Unlisted > 0 {
		fmt.Fprintf(o.out, "\n%s of hosts beyond 256 of each are not listed.\n", condition.Count(x.Unlisted, "published port"))
	}
	return nil
}
