package netctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// doctorTimeout is when doctor gives up on a netmaster, unless --timeout says otherwise:
// hosts that do not answer are not waited for as long.
const doctorTimeout = time.Minute

type doctorOptions struct {
	common
	repair bool
}

func newDoctor(base common) *command {
	o := &doctorOptions{common: base}
	c := &command{
		name:     "doctor",
		short:    "Check the cluster: allocations without an owner, hosts, data planes, certificates, disks, versions",
		examples: []string{"netctl doctor", "netctl doctor --repair", "netctl doctor --json"},
	}
	c.flags.Bool(&o.repair, "repair", "repair allocations without an owner, and owners without an allocation")
	c.flags.Bool(&o.json, "json, j", "print the findings as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", fmt.Sprintf("print nothing; the exit code is %d when something was found", ExitUnhealthy))
	c.run = bindRun(o, runDoctor, nil)
	return c
}

func runDoctor(ctx context.Context, o *doctorOptions) error {
	o.globals.timeout = cmp.Or(o.globals.timeout, doctorTimeout)
	client, err := o.client()
	if err != nil {
		return err
	}
	ask := client.Doctor
	if o.repair {
		ask = client.Repair
	}
	d, err := ask(ctx)
	if err != nil {
		return err
	}
	d.Findings = append(judgeReplicas(ctx, client, d.Findings), d.Findings...)
	switch {
	case o.json:
		err = printJSON(o.out, d)
	case !o.quiet:
		err = o.show(d)
	}
	if err == nil && !d.IsHealthy() {
		err = errUnhealthy
	}
	return err
}

func (o *doctorOptions) show(d api.Diagnosis) error {
	l := findings.items(d.Findings...)
	for _, x := range l.all {
		if o.columns > 0 {
			fmt.Fprintln(o.out, findingText(x.row, o.columns))
		}
	}
	if len(l.all) > 0 && o.columns == 0 {
		if err := o.printItems(l); err != nil {
			return err
		}
		fmt.Fprintln(o.out)
	}
	verdict := condition.Count(len(d.Findings), "finding")
	if len(d.Findings) == 0 {
		verdict = "Nothing was found"
	}
	_, err := fmt.Fprintf(o.out, "%s; %d of %d hosts answered.\n", verdict, d.Answered, d.Hosts)
	return err
}

var findings = columns[api.Finding]{
	header: []string{"How bad", "About", "Where", "What", "What to do"},
	row: func(f api.Finding) []string {
		remedy := f.Remedy
		switch f.Repair {
		case "", api.RepairPossible:
		case api.RepairDone:
			remedy = "nothing: it was repaired"
		default:
			remedy = "the repair " + f.Repair
		}
		return []string{f.Severity, f.Check, f.Where, f.Text, remedy}
	},
}

// findingText is a finding's row on a terminal, which a table would not fit.
func findingText(row []string, columns int) string {
	const indent = "  "
	return strings.Join(row[:3], ", ") + ":\n" +
		wrap(indent+row[3], indent, columns) + "\n" +
		wrap(indent+"-> "+row[4], indent+"   ", columns) + "\n"
}
