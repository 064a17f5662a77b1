package netctl

import (
	"context"

	"github.com/contiv/netplugin/v2/api"
)

type releaseOptions struct {
	common
	release api.OwnershipRelease
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
	if err := client.ReleaseOwnership(ctx, o.release); err != nil {
		return err
	}
	return o.result(o.release, o.release.Key, "Released %s %s: it is the users'", k.name, o.release.Key)
}
