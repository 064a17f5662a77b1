package netctl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

type verifyOptions struct {
	common
}

func newVerify(base common) *command {
	o := &verifyOptions{common: base}
	c := &command{
		name:     "verify",
		short:    "Compare each host's state with the store, and each data plane with that state, and repair data planes that differ",
		examples: []string{"netctl verify", "netctl verify --json"},
	}
	c.flags.Bool(&o.json, "json, j", "print the hosts as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", fmt.Sprintf("print nothing; the exit code is %d unless every host was compared and none differed", ExitUnhealthy))
	c.run = bindRun(o, runVerify, nil)
	return c
}

func runVerify(ctx context.Context, o *verifyOptions) error {
	o.globals.timeout = cmp.Or(o.globals.timeout, doctorTimeout)
	client, err := o.client()
	if err != nil {
		return err
	}
	v, err := client.Verify(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.json:
		err = printJSON(o.out, v)
	case !o.quiet:
		err = o.show(v)
	}
	if err == nil && !v.IsProven() {
		err = errUnhealthy
	}
	return err
}

var verifications = columns[api.HostVerification]{
	header: []string{"Host", "Rows of the store", "Entries of the data plane", "Result"},
	row: func(v api.HostVerification) []string {
		switch {
		case v.Error != "":
			return []string{v.Host, "", "", "not compared: " + v.Error}
		case len(v.Differences) > 0:
			return []string{v.Host, strconv.Itoa(v.Rows), strconv.Itoa(v.Entries), strings.Join(v.Differences, "; ")}
		}
		return []string{v.Host, strconv.Itoa(v.Rows), strconv.Itoa(v.Entries), "no difference"}
	},
}

func (o *verifyOptions) show(v api.Verification) error {
	if err := o.printItems(verifications.items(v.Hosts...)); err != nil {
		return err
	}
	proven := 0
	for _, h := range v.Hosts {
		if h.Error == "" && len(h.Differences) == 0 {
			proven++
		}
	}
	_, err := fmt.Fprintf(o.out, "\n%d of %s match the store.\n", proven, condition.Count(len(v.Hosts), "host"))
	return err
}
