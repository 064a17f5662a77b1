package netctl

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/api"
)

type releaseOptions struct {
	common
	release api.Release
}

func newRelease(base common) *command {
	o := &releaseOptions{common: base}
	c := &command{
		name:  "release",
		fills: &o.release,
		short: "Take from Kubernetes what one of its objects made (owner kubernetes), so that users change it again; the object in Kubernetes stays, says that it owns nothing, and can be deleted",
		examples: []string{
			"netctl release network blue:backend",
			"netctl release tenant blue",
		},
		args: []string{"KIND", "KEY"},
	}
	o.changeFlags(&c.flags, "json, j", "print what was released, as JSON")
	c.run = bindRun(o, runRelease, []*string{&o.release.Kind, &o.release.Key})
	return c
}

func runRelease(ctx context.Context, o *releaseOptions) error {
	k, err := findKind(o.release.Kind)
	if err != nil {
		return err
	}
	o.release.Kind = k.name
	client, err := o.client()
	if err != nil {
		return err
	}
	if err := client.Release(ctx, o.release); err != nil {
		return err
	}
	switch {
	case o.json:
		return printJSON(o.out, o.release)
	case o.quiet:
		_, err = fmt.Fprintln(o.out, o.release.Key)
	default:
		_, err = fmt.Fprintf(o.out, "Released %s %s: it is the users'\n", k.name, o.release.Key)
	}
	return err
}
