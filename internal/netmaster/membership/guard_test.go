package membership

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestHostCertificatesCannotUseTheStore: a host's certificate lets in nowhere at the embedded store's port, and a
// netmaster's everywhere.
func TestHostCertificatesCannotUseTheStore(t *testing.T) {
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	open := func(name string, role pki.Role) *transport.Directory {
		t.Helper()
		c, err := a.Issue(pki.Request{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		d, err := transport.OpenDirectory(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	log := slog.New(slog.DiscardHandler)
	m, err := Start(t.Context(), Config{Dir: t.TempDir(), Client: storetest.FreePort(t), TLS: open("master", pki.Netmaster).Files(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := func(name string, role pki.Role) *clientv3.Client {
		t.Helper()
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{m.Endpoint()}, TLS: open(name, role).Client(), DialTimeout: patience,
			DialOptions: []grpc.DialOption{grpc.WithBlock()}, //nolint:staticcheck // a test wants to know
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	master, host := client("other", pki.Netmaster), client("host1", pki.Host)
	secret, row := store.Root+"access/tokens/X", store.Root+"state/tenant/blue/groups/x"
	for _, k := range []string{secret, row} {
		if _, err := master.Put(ctx, k, "v"); err != nil {
			t.Fatalf("a netmaster writes: %v", err)
		}
	}
	put := clientv3.OpPut(row, "w")
	for what, try := range map[string]func() error{
		"put":          func() error { _, err := host.Put(ctx, row, "w"); return err },
		"delete":       func() error { _, err := host.Delete(ctx, row); return err },
		"write in txn": func() error { _, err := host.Txn(ctx).Then(put).Commit(); return err },
		"write in txn's else": func() error {
			_, err := host.Txn(ctx).If(clientv3.Compare(clientv3.Value(row), "=", "")).Else(put).Commit()
			return err
		},
		"write in txn in txn": func() error {
			_, err := host.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)).Commit()
			return err
		},
		"guess by comparing": func() error {
			_, err := host.Txn(ctx).If(clientv3.Compare(clientv3.Value(secret), "=", "v")).Commit()
			return err
		},
		"read in txn":          func() error { _, err := host.Txn(ctx).Then(clientv3.OpGet(secret)).Commit(); return err },
		"read tokens":          func() error { _, err := host.Get(ctx, secret); return err },
		"read all":             func() error { _, err := host.Get(ctx, "", clientv3.WithPrefix()); return err },
		"read all from theirs": func() error { _, err := host.Get(ctx, row, clientv3.WithFromKey()); return err },
		"read a row":           func() error { _, err := host.Get(ctx, row); return err },
		"list the members":     func() error { _, err := host.MemberList(ctx); return err },
		"watch a row":          func() error { return watchErr(ctx, host, row) },
		"lease":                func() error { _, err := host.Grant(ctx, 5); return err },
		"compact":              func() error { _, err := host.Compact(ctx, 1); return err },
		"snapshot": func() error {
			r, err := host.Snapshot(ctx)
			if err == nil {
				_, err = r.Read(make([]byte, 1))
			}
			return err
		},
		"remove a member":  func() error { _, err := host.MemberRemove(ctx, 1); return err },
		"turn on auth":     func() error { _, err := host.AuthEnable(ctx); return err },
		"watch the tokens": func() error { return watchErr(ctx, host, secret) },
		"watch all":        func() error { return watchErr(ctx, host, "", clientv3.WithPrefix()) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), "asks netmaster, and not the store") {
			t.Errorf("a host may %s: %v", what, err)
		}
	}
	if r, err := master.Get(ctx, row); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" {
		t.Errorf("the row is %v, %v", r, err)
	}
}

// watchErr is why a watch ends.
func watchErr(ctx context.Context, c *clientv3.Client, key string, opts ...clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range c.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
		if err := r.Err(); err != nil {
			return err
		}
		if r.Created {
			return nil
		}
	}
	return ctx.Err()
}

// TestPlainConnectionsMakeNoTokens: where plain connections are let in, what is done by them ends with them:
// none makes or spends a token, nor changes whose certificates are good.
func TestPlainConnectionsMakeNoTokens(t *testing.T) {
	t.Parallel()
	cfg := secured(t, 66, "a")
	cfg.Plain = []string{cfg.Client}
	start(t, cfg)
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + cfg.Client}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cli.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	row := store.Root + "state/tenant/blue/groups/x"
	if _, err := cli.Put(ctx, row, "v"); err != nil {
		t.Fatalf("who comes plainly writes: %v", err)
	}
	for _, key := range []string{tokenRows + "X", hostTokenRows + "X", hostRows + "h1", clientsRow, store.Root + "access/tokens/X"} {
		put, del := clientv3.OpPut(key, "v"), clientv3.OpDelete(key)
		for what, try := range map[string]func() error{
			"put":    func() error { _, err := cli.Put(ctx, key, "v"); return err },
			"delete": func() error { _, err := cli.Delete(ctx, key); return err },
			"delete the rest": func() error {
				_, err := cli.Delete(ctx, row[:len(store.Root)], clientv3.WithFromKey())
				return err
			},
			"delete around it": func() error { _, err := cli.Delete(ctx, store.Root, clientv3.WithPrefix()); return err },
			"put in txn":       func() error { _, err := cli.Txn(ctx).Then(put).Commit(); return err },
			"delete in txn's else": func() error {
				_, err := cli.Txn(ctx).If(clientv3.Compare(clientv3.Value(row), "=", "")).Else(del).Commit()
				return err
			},
			"put in txn in txn": func() error {
				_, err := cli.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(row)}, []clientv3.Op{put})).Commit()
				return err
			},
		} {
			if err := try(); err == nil || !strings.Contains(err.Error(), "need TLS") {
				t.Errorf("who comes plainly may %s %s: %v", what, key, err)
			}
		}
	}
	if r, err := cli.Get(ctx, row); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "v" {
		t.Errorf("the row is %v, %v", r, err)
	}
}
