package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/token"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/store"
)

// adminFile has the first administrator's token, below the data directory.
const adminFile = "admin-token"

// auditName is the directory of the record of changes, likewise.
const auditName = "audit"

// secureFlags are flags of the embedded store that --secure needs with another etcd too: this
// netmaster has the authorities in its data directory, and shares them with others.
var secureFlags = []string{"secure", "data-dir", "join", "token", "member-name", "join-listen", "join-address", "member-service-account", "join-token-file"}

func (o *options) registerSecure(fs *flags.Set) {
	fs.Bool(&o.secure, "secure", "TLS with certificates of the cluster's own, tokens and an audit log; the first administrator's token is written to "+adminFile+" in --data-dir; for all netmasters or none")
	fs.Bool(&o.acceptPlain, "accept-plain", "with --secure, on a cluster that ran without it: also accept clients without TLS, until all hosts have joined")
	o.registerEnroll(fs)
}

// finishSecure fills in what --secure stands for; own is this host's address, by which
// others reach it.
func (o *options) finishSecure(fs *flags.Set, own string) error {
	if !o.secure && o.acceptPlain {
		return flags.Usagef("%s is for a cluster that is turned secure: give --secure too", fs.Given("accept-plain"))
	}
	if err := o.finishEnroll(fs); err != nil || !o.secure {
		return err
	}
	how := fs.Given("secure")
	for _, flag := range []string{"tls-dir", "store-tls-dir"} {
		if other := fs.Given(flag); other != "" && (flag == "tls-dir" || !o.store.External()) {
			return flags.Usagef("%s makes its own certificates, and %s names others; omit one", how, other)
		}
	}
	if o.joining.peerListen == noMembers {
		return flags.Usagef("%s needs the port where hosts get their certificates, and %s is none; omit one", how, fs.Given("peer-listen"))
	}
	for _, u := range o.store.Etcd {
		if host, _, _ := net.SplitHostPort(strings.TrimPrefix(u, "http://")); strings.HasPrefix(u, "http://") && !isLoopback(host) {
			return flags.Usagef("%s, but anyone who can reach the store at %s controls the cluster: serve it by TLS and name it as https://; if it asks for certificates, give --store-tls-dir", how, u)
		}
	}
	o.access.tokens = true
	if fs.Given("audit-dir") == "" {
		dir, err := filepath.Abs(o.dataDir)
		if err != nil {
			return fmt.Errorf("the directory of the audit log: %w", err)
		}
		o.access.auditDir = filepath.Join(dir, auditName)
	}
	if o.acceptPlain {
		o.plainStore = o.etcdListen // where it listened before
	}
	if fs.Given("etcd-listen") == "" {
		o.etcdListen = net.JoinHostPort(own, "2379")
	}
	return nil
}

// secureNames are the names for its certificate; nil without --secure.
func (o *options) secureNames() []string {
	if !o.secure {
		return nil
	}
	names := append(hostsOf(o.external, o.internal, o.agent, o.etcdListen, o.joining.enrollmentListen), "127.0.0.1", "localhost")
	if own, err := os.Hostname(); err == nil {
		if name, err := model.ParseHostName(own); err == nil {
			names = append(names, string(name))
		}
	}
	names = append(names, o.hosts...)
	slices.Sort(names)
	return slices.Compact(names)
}

// openAll opens the store and what the API is served on. With --secure the store is
// first: what the API is served with is the cluster's.
func openAll(ctx context.Context, o *options, log *slog.Logger) (lns []net.Listener, st store.Store, closeStore func() error, server *membership.Member, err error) {
	if o.secure {
		if st, closeStore, server, err = openStore(ctx, *o, log); err != nil {
			return nil, nil, nil, nil, err
		}
		if err = o.finishSecureStart(ctx, st, server, log); err == nil {
			lns, err = listen(ctx, *o, log)
		}
		if err != nil {
			return nil, nil, nil, nil, errors.Join(err, closeStore())
		}
		return lns, st, closeStore, server, nil
	}
	// Listeners first: an address in use is an error at once.
	if lns, err = listen(ctx, *o, log); err != nil {
		return nil, nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			for _, ln := range lns {
				_ = ln.Close() // closed already when it was served
			}
		}
	}()
	endWait := whileWaiting(ctx, lns, log)
	st, closeStore, server, err = openStore(ctx, *o, log)
	if endWait() && err == nil {
		if lns, err = listen(ctx, *o, log); err != nil {
			err = errors.Join(err, closeStore())
		}
	}
	return lns, st, closeStore, server, err
}

// finishSecureStart takes the certificate that the store's member has got, and writes the first
// administrator's token unless one exists.
func (o *options) finishSecureStart(ctx context.Context, st store.Store, server *membership.Member, log *slog.Logger) error {
	dir := membership.ClientsDir(o.dataDir)
	if err := o.certs.Use(dir); err != nil {
		return err
	}
	o.tls = o.certs.Config()
	o.secureListeners()
	authorities := filepath.Join(dir, pki.BundleFile)
	return server.Authorities.FirstAdmin(ctx, func() error {
		secret, made, err := token.NewStore(st).Create(ctx, token.TokenRequest{
			Name: "first administrator", Grant: access.Grant{Role: access.ClusterAdmin}, Life: token.MaxLife, By: "netmaster " + server.Name(),
		})
		if err != nil {
			return fmt.Errorf("make the first administrator's token: %w", err)
		}
		file := filepath.Join(o.dataDir, adminFile)
		if err := durable.WriteFile(file, []byte(secret+"\n")); err != nil {
			return fmt.Errorf("save the first administrator's token: %w", err)
		}
		log.Info("the first administrator's token is written, for this user only", "file", file, "expires", made.Expires,
			"use", "netctl --netmaster https://"+o.internal+" login --token --ca-file "+authorities)
		return nil
	})
}
