package main

import (
	"context"
	"os"

	"github.com/contiv/netplugin/v2/internal/daemon"
)

func main() {
	daemon.PaceCollector(64 << 20) // with 50,000 endpoints and 1,000 hosts it has 352 MB by it, and 505 without
	os.Exit(daemon.Run("netmaster", os.Stderr, func(ctx context.Context) error {
		var o options
		fs := newFlags(&o)
		if done, err := daemon.ParseFlags(fs, os.Args[1:], os.Getenv, os.Stdout); done {
			return err
		}
		if err := o.finish(ctx, fs); err != nil {
			return err
		}
		return run(ctx, o, os.Stderr)
	}))
}
