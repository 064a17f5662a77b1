package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/security/enrollment"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	// joinTime is how long a host tries to get its first certificate by a token while no
	// netmaster answers. Then it exits, so that a wrong address is noticed soon, and
	// systemd starts it again.
	joinTime = 30 * time.Second
	// joinedDir is below the state directory.
	joinedDir     = "tls"
	netmasterPort = "9999"
)

// joining is how this host joins a cluster that is secure.
type joining struct {
	enrollmentServers []string // of netmasters
	token             string
	account           enrollment.Account // in place of token
	dir               string             // of the certificate that was got; "" = none was
	discovers         bool               // netmasters where they were joined: no other place was given
	left              string             // where the certificate is that is not used any more
}

func joinFlags(fs *flags.Set, o *options) {
	fs.Strings(&o.joining.enrollmentServers, "join", "addresses", "--join-listen of netmasters with --secure, comma-separated: get a certificate with --token and store it in tls in --state-dir; later starts need neither flag, but use the addresses if they are given").Must(checkEnrollmentServers)
	fs.String(&o.joining.token, "token", "token", "token for --join, valid once, from 'netctl cluster token --host'; prefer the environment variable, since other users of this machine can see flags")
	fs.String(&o.joining.account.TokenFile, "join-token-file", "file", "with --join in a pod, instead of --token: file with its service account token for the audience contiv; needs --join-authority, and --enroll-service-account of netmasters")
	fs.String(&o.joining.account.Authority, "join-authority", "file", "with --join-token-file: authority of the servers that may get the token, in PEM, a copy of join/authority/ca.crt in netmasters' --data-dir")
}

func checkEnrollmentServers(v string) error {
	for _, s := range flags.Split(v) {
		if err := daemon.CheckHostPort(s); err != nil {
			return err
		}
	}
	return nil
}

// join gets this host's certificate where the flags say so, and uses the one that it
// got before where they name none.
func (o *options) join(ctx context.Context, fs *flags.Set) error {
	dir := filepath.Join(o.stateDir, joinedDir)
	how := fs.Given("join")
	for _, flag := range []string{"token", "join-token-file", "join-authority"} {
		if how == "" {
			how = fs.Given(flag)
		}
	}
	own := fs.Given("tls-dir")
	if own == "" {
		own = fs.Given("store-tls-dir")
	}
	switch {
	case how != "" && own != "":
		return flags.Usagef("%s gets this host a certificate, and %s names another; omit one", how, own)
	case how != "" && len(o.store.Consul) > 0:
		return flags.Usagef("%s is for the embedded store, and a Consul is named; omit one", how)
	case o.joining.account != (enrollment.Account{}):
		if err := o.joining.checkAccount(fs); err != nil {
			return err
		}
	case own != "" || how == "" && !enrollment.Joined(dir):
		return nil
	case how == "" && enrollment.ByAccount(dir) && o.storeGivenWithoutTLS(fs):
		o.joining.left = dir
		return nil
	case o.joining.token == "" && !enrollment.Joined(dir):
		return flags.Usagef("%s needs a token: make one with 'netctl cluster token --host NAME' and give it with --token", how)
	}
	if err := o.identify(ctx); err != nil {
		return err
	}
	if o.joining.token != "" || o.joining.account.TokenFile != "" {
		if err := o.getCertificate(ctx, dir); err != nil {
			return err
		}
	}
	if err := o.certs.Use(dir); err != nil {
		return err
	}
	o.joining.dir = dir
	if fs.Given("etcd-endpoints") != "" || !o.store.External() || o.store.Old != "" || o.netmaster != "" {
		return nil
	}
	doors, err := enrollment.Servers(dir)
	if err != nil {
		return err
	}
	for _, d := range o.joining.enrollmentServers { // those of the directory may all have been replaced
		if !slices.Contains(doors, d) {
			doors = append(doors, d)
		}
	}
	o.joining.discovers, o.store.Etcd = true, nil
	if o.seeds = netmastersAt(doors); len(o.seeds) == 0 {
		return errors.New("no netmaster's address is known: give them with --netmaster")
	}
	return nil
}

// storeGivenWithoutTLS reports whether the store was given, without TLS. A pod gets its join flags at
// each start. If it has a certificate, but gets a store without TLS and no join flags, its
// cluster was rolled back to plain. Other hosts get their flags once, so for them http://
// is a mistake.
func (o *options) storeGivenWithoutTLS(fs *flags.Set) bool {
	return fs.Given("etcd-endpoints") != "" && !slices.ContainsFunc(o.store.Etcd, func(u string) bool { return !strings.HasPrefix(u, transport.HTTP+"://") })
}

// getCertificate gets this host's first certificate. A pod waits for it as long as it
// takes: its kubelet would start it again, each time later.
func (o *options) getCertificate(ctx context.Context, dir string) (err error) {
	cfg := o.enrolment(dir)
	if o.joining.account.TokenFile == "" {
		ctx, cancel := context.WithTimeout(ctx, joinTime)
		defer cancel()
		return enrollment.Join(ctx, cfg)
	}
	log, closeLog, err := o.log.Open("netplugin", os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	cfg.Waits = func(why error) { log.Warn("this host waits for its first certificate", "error", why) }
	return enrollment.Join(ctx, cfg)
}

// checkAccount refuses what a service account's token does not go with.
func (j *joining) checkAccount(fs *flags.Set) error {
	switch {
	case j.account.TokenFile == "":
		return flags.Usagef("%s is for a pod that joins by its service account: give --join-token-file too", fs.Given("join-authority"))
	case j.token != "":
		return flags.Usagef("%s and %s are two ways to join; omit one", fs.Given("token"), fs.Given("join-token-file"))
	case len(j.enrollmentServers) == 0:
		return flags.Usagef("%s needs the netmasters' addresses: give them with --join", fs.Given("join-token-file"))
	case j.account.Authority == "":
		return flags.Usagef("%s is sent only to netmasters of a given authority: give it with --join-authority", fs.Given("join-token-file"))
	}
	return nil
}

// enrolment is how this host gets its certificates, in dir.
func (o *options) enrolment(dir string) enrollment.Config {
	return enrollment.Config{Dir: dir, Name: string(o.hostName), Addresses: o.ownAddresses(), Servers: o.joining.enrollmentServers, Token: o.joining.token, Account: o.joining.account}
}

// follow returns what is to be done when netmasters have come or gone: set takes their URLs.
func (j *joining) follow(set func(urls []string)) func(doors []string) {
	return func(doors []string) {
		if urls := netmastersAt(doors); j.discovers && len(urls) > 0 {
			set(urls)
		}
	}
}

// netmastersAt is where netmasters with --secure are asked unless told otherwise.
func netmastersAt(doors []string) (urls []string) {
	for _, d := range doors {
		host, _, err := net.SplitHostPort(d)
		if u := netmasterAt(strings.Trim(host, "[]"), true); err == nil && !slices.Contains(urls, u) {
			urls = append(urls, u)
		}
	}
	return urls
}

func netmasterAt(host string, byTLS bool) string {
	scheme := transport.HTTP
	if byTLS {
		scheme = transport.HTTPS
	}
	return scheme + "://" + net.JoinHostPort(host, netmasterPort)
}

// ownAddresses are those by which others connect to this host.
func (o *options) ownAddresses() []net.IP {
	out := []net.IP{o.ctrl.AsSlice()}
	if o.vtep != o.ctrl {
		out = append(out, o.vtep.AsSlice())
	}
	if at := hoststack.SourceAddr6(); at.IsValid() && at != o.ctrl && at != o.vtep {
		out = append(out, at.AsSlice())
	}
	return out
}
