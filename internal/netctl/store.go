package netctl

import (
	"context"
	"io"
	"os"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

type storeOptions struct {
	common
	adopts     bool
	keepTokens bool
}

func newStore(base common) *command {
	return &command{
		name:  "store",
		short: "The store with the cluster's state.",
		examples: []string{
			"netctl store info",
			"netctl store adopt",
		},
		subs: []*command{
			newStoreCommand(base, "info", "Show which store it is", "netctl store info", false),
			newStoreCommand(base, "adopt", "Have hosts that keep the desired state of another store, or of a later state of this one, adopt this one", "netctl store adopt", true),
		},
	}
}

func newStoreCommand(base common, name, short, example string, adopts bool) *command {
	o := &storeOptions{common: base, adopts: adopts}
	c := &command{name: name, short: short, examples: []string{example}}
	c.flags.Bool(&o.json, "json, j", "print JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print the store's id only")
	if adopts {
		c.flags.Bool(&o.keepTokens, "keep-tokens", "existing tokens stay valid, including those revoked after the restored state")
	}
	c.run = bindClient(o, func(ctx context.Context, client *api.Client, o *storeOptions) error {
		info, err := o.storeInfo(ctx, client)
		if err != nil {
			return err
		}
		ended := ""
		if info.TokensEnded {
			ended = "\nAll tokens of netctl and other clients that were made before have ended, since the store was restored to an earlier state: make new ones with 'netctl token create', with a certificate of a cluster-admin"
		}
		return o.result(info, info.ID, "Store: %s\nEpoch: %d, since %s%s", info.ID, info.Epoch, info.Since, ended)
	}, nil)
	return c
}

func (o *storeOptions) storeInfo(ctx context.Context, c *api.Client) (api.StoreInfo, error) {
	if o.adopts {
		return c.AdoptStore(ctx, o.keepTokens)
	}
	return c.Store(ctx)
}

type backupOptions struct {
	common
	file string
}

func newBackup(base common) *command {
	o := &backupOptions{common: base}
	c := &command{
		name:     "backup",
		short:    "Write a backup of the cluster's store to a file, while all goes on; netmaster --restore reads it",
		args:     []string{"FILE"},
		examples: []string{"netctl backup contiv.backup"},
	}
	c.flags.Bool(&o.json, "json, j", "print how large it is, as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", "print nothing")
	c.run = bindClient(o, runBackup, []*string{&o.file})
	return c
}

// runBackup makes the file only when the backup is whole; a file that is
// there is not overwritten.
func runBackup(ctx context.Context, client *api.Client, o *backupOptions) (err error) {
	if err := refuseExisting(o.file); err != nil {
		return err
	}
	var n int64
	err = o.writeNew(o.file, func(w io.Writer) (err error) {
		if n, err = client.Backup(ctx, w); err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil || o.file == stdStream {
		return err
	}
	return o.result(map[string]any{"file": o.file, "bytes": n}, "", "%s: %d bytes", o.file, n)
}

// stdStream stands for standard output where a file is to be named.
const stdStream = "-"

// refuseExisting refuses the name of a file that is there: a mistyped name destroys nothing.
func refuseExisting(file string) error {
	if _, err := os.Lstat(file); err == nil && file != stdStream {
		return flags.Usagef("%s is there already; name another file", file)
	}
	return nil
}

// writeNew has fill write the file, which is made only when it is whole, or standard
// output.
func (o *common) writeNew(file string, fill func(io.Writer) error) error {
	if file == stdStream {
		if safe, ok := o.out.(*safeWriter); ok { // a file is no text for terminals
			return fill(safe.to)
		}
		return fill(o.out)
	}
	return durable.Write(file, fill)
}
