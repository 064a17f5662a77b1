package clusterstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/consul"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// LocalEtcd is where 1.x expects etcd.
const LocalEtcd = "http://127.0.0.1:2379"

// Flags say where the cluster's state is kept. Etcd and Consul are as given until Resolve,
// and URLs after it; at most one of them is not empty.
type Flags struct {
	Etcd, Consul []string
	TokenFile    string // with the token for Consul; empty = none
	Old          string // the spelling of 2017
}

// Register adds the flags with these texts to a program's, and returns the one of etcd.
func (f *Flags) Register(fs *flags.Set, etcdUsage, consulUsage string) *flags.Flag {
	inEtcd := fs.Strings(&f.Etcd, "etcd-endpoints, etcd", "urls", etcdUsage).Must(func(v string) error { _, err := etcd.ParseFlag(flags.Split(v)); return err })
	fs.Strings(&f.Consul, "consul-endpoints, consul", "urls", consulUsage).Must(func(v string) error { _, err := consul.ParseFlag(flags.Split(v)); return err })
	fs.String(&f.TokenFile, "consul-token-file", "file", "file with the token for Consul's access control; reloaded when it changes; empty = none")
	fs.String(&f.Old, "cluster-store", "etcd|consul://host:port", "deprecated spelling of --etcd-endpoints and --consul-endpoints").Must(func(v string) error {
		if consul.IsClusterStore(v) {
			return consul.CheckClusterStore(v)
		}
		return etcd.CheckClusterStore(v)
	}).Old("--etcd-endpoints or --consul-endpoints")
	return inEtcd
}

// Choose takes the spelling of 2017, and refuses more than one store.
func (f *Flags) Choose(fs *flags.Set) error {
	if err := fs.AtMostOne("a cluster store", "etcd-endpoints", "consul-endpoints", "cluster-store"); err != nil {
		return err
	}
	switch {
	case consul.IsClusterStore(f.Old):
		f.Consul = []string{f.Old}
	case f.Old != "":
		f.Etcd = []string{f.Old}
	}
	if len(f.Consul) > 0 {
		f.Etcd = nil // the default
	} else if how := fs.Given("consul-token-file"); how != "" {
		return flags.Usagef("%s is for a Consul; name it with --consul-endpoints", how)
	}
	return nil
}

// Resolve makes URLs of what is given: https where there are certificates for the store. It
// refuses what the user wrote as http then.
func (f *Flags) Resolve(fs *flags.Set, certs *daemon.TLS) error {
	for _, kind := range []struct {
		flag  string
		urls  *[]string
		parse func([]string) ([]string, error)
	}{{"etcd-endpoints", &f.Etcd, etcd.ParseFlag}, {"consul-endpoints", &f.Consul, consul.ParseFlag}} {
		if len(*kind.urls) == 0 {
			continue
		}
		var given []string
		if fs.Given(kind.flag) != "" {
			given = *kind.urls
		}
		urls, err := kind.parse(*kind.urls)
		if err != nil {
			return flags.Usagef("--%s: %w", kind.flag, err)
		}
		if *kind.urls, err = certs.SecureStore(given, urls); err != nil {
			return err
		}
	}
	return nil
}

// External reports whether a store is given.
func (f *Flags) External() bool { return len(f.Etcd)+len(f.Consul) > 0 }

// Client is of the cluster's store, and tells where it answers.
type Client interface {
	store.Store
	Addresses(ctx context.Context) ([]string, error)
	Collectors() []prometheus.Collector
}

// Open makes a client of the store that is given. agent says that it belongs to a host, which
// only reads.
func (f *Flags) Open(conf *tls.Config, agent bool, log *slog.Logger) (Client, error) {
	if len(f.Consul) == 0 {
		st, err := etcd.New(etcd.Config{Endpoints: f.Etcd, TLS: conf, Logger: log, Agent: agent})
		if err != nil {
			return nil, flags.Usagef("--etcd-endpoints: %w", err)
		}
		return st, nil
	}
	shown, err := transport.OpenTokens(f.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--consul-token-file: %w", err)
	}
	st, err := consul.New(consul.Config{Endpoints: f.Consul, Token: shown.Source(), TLS: conf, Logger: log, Agent: agent, Reap: !agent})
	if err != nil {
		return nil, flags.Usagef("--consul-endpoints: %w", err)
	}
	return st, nil
}
