package netctl

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// doctorTimeout is when doctor gives up on a netmaster, unless --timeout says otherwise:
// hosts that do not answer are not waited for as long.
const doctorTimeout = time.Minute

type doctorOptions struct {
	common
	globals *globals
	repair  bool
	columns int
}

func newDoctor(f *factory, run func(context.Context, *doctorOptions) error) *command {
	o := &doctorOptions{common: newCommon(f), globals: f.globals, columns: f.columns}
	c := &command{
		name:     "doctor",
		short:    "Look for what is wrong: what is owned by nobody, hosts, data planes, certificates, disks, versions",
		examples: []string{"netctl doctor", "netctl doctor --repair", "netctl doctor --json"},
	}
	c.flags.boolVar(&o.repair, "repair", "put right what is owned by nobody, or is not allocated to its owner")
	c.flags.boolVar(&o.json, "json, j", "print the findings as JSON")
	c.flags.boolVar(&o.quiet, "quiet, q", fmt.Sprintf("print nothing; the exit code is %d when something was found", ExitUnwell))
	c.run = bindRun(o, orDefault(run, runDoctor), nil)
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
	switch {
	case o.json:
		err = printJSON(o.out, d)
	case !o.quiet:
		err = o.show(d)
	}
	if err == nil && !d.Well() {
		err = errUnwell
	}
	return err
}

func (o *doctorOptions) show(d api.Diagnosis) error {
	var rows [][]string
	for _, f := range d.Findings {
		remedy := f.Remedy
		switch f.Repair {
		case "", api.RepairPossible:
		case api.RepairDone:
			remedy = "nothing: it was repaired"
		default:
			remedy = "the repair " + f.Repair
		}
		if o.columns > 0 {
			fmt.Fprintln(o.out, findingText(f.Severity, f.Check, f.Where, f.Text, remedy, o.columns))
			continue
		}
		rows = append(rows, []string{f.Severity, f.Check, f.Where, f.Text, remedy})
	}
	if len(rows) > 0 {
		if err := printTable(o.out, []string{"How bad", "About", "Where", "What", "What to do"}, rows); err != nil {
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

// findingText is a finding on a terminal, whose lines a row of a table would not fit.
func findingText(severity, check, where, what, remedy string, columns int) string {
	const indent = "  "
	return severity + ", " + check + ", " + where + ":\n" +
		wrap(indent+what, indent, columns) + "\n" +
		wrap(indent+"-> "+remedy, indent+"   ", columns) + "\n"
}
