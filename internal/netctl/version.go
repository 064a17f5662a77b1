package netctl

import (
	"context"
	"fmt"
	"io"

	"github.com/contiv/netplugin/v2/api"
)

type versionOptions struct {
	common
	build api.Version
}

func newVersion(base common, build api.Version) *command {
	o := &versionOptions{common: base, build: build}
	c := &command{
		name:     "version",
		short:    "Shows the versions of netctl and of the netmaster it talks to.",
		examples: []string{"netctl version", "netctl version --json"},
	}
	c.flags.Bool(&o.json, "json, j", "print JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print the server's version only")
	c.run = bindClient(o, runVersion, nil)
	return c
}

// runVersion shows the client's version also when no server answers.
func runVersion(ctx context.Context, client *api.Client, o *versionOptions) error {
	server, serverErr := client.Version(ctx)
	var err error
	switch {
	case o.quiet && !o.json:
		if serverErr == nil {
			err = printLines(o.out, []string{textOrUnknown(server.Version)})
		}
	case o.json:
		v := map[string]api.Version{"client": o.build}
		if serverErr == nil {
			v["server"] = server
		}
		err = printJSON(o.out, v)
	default:
		err = printVersion(o.out, "Client", o.build)
		if serverErr == nil && err == nil {
			fmt.Fprintln(o.out)
			err = printVersion(o.out, "Server", server)
		}
	}
	if serverErr != nil {
		return serverErr
	}
	return err
}

func printVersion(w io.Writer, side string, v api.Version) error {
	_, err := fmt.Fprintf(w, "%s Version:\nVersion: %s\nGitCommit: %s\nBuildTime: %s\n",
		side, textOrUnknown(v.Version), textOrUnknown(v.GitCommit), textOrUnknown(v.BuildTime))
	return err
}
