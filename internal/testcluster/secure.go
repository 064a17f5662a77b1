package testcluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// certificates makes the certificates of a lab, and says which files its processes are
// given. Its state is on disk.
type certificates struct {
	*core
}

// Whose certificates of an authority of the operator's own a lab has (Config.TLS), as
// docs/how-to/tls.md says.
const (
	TLSStore = "store" // those of an etcd and of who asks it
	TLSOwn   = "own"   // netmasters', hosts' and administrators', and of a store that is no Consul
)

// TurnSecure has a plain cluster whose netmasters keep the store themselves run with --secure,
// by the steps of docs/how-to/secure-running.md, during which containers talk. Each host joins by a
// token of its own, by restart, which ends its netplugin and starts it with JoinFlags, as
// RestartAgent does; from then on Netctl asks as a cluster administrator, and what is started
// speaks TLS.
func (l *Masters) TurnSecure(ctx context.Context, restart func(ctx context.Context, h *Host) error) error {
	if !l.st.Config.Embedded {
		return fmt.Errorf("lab %s: --secure is for netmasters that keep the store themselves", l.st.Config.Name)
	}
	l.mu.Lock()
	l.st.Config.Secure = true
	err := l.save()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.restartMasters(ctx, []string{"--accept-plain"}); err != nil {
		return err
	}
	for _, h := range l.Hosts() {
		if err := restart(ctx, h); err != nil {
			return err
		}
	}
	return l.restartMasters(ctx, nil)
}

// restartMasters restarts the netmasters, one after the other, and waits until each serves.
func (l *Masters) restartMasters(ctx context.Context, flags []string) error {
	for n := range l.st.Config.Replicas {
		if err := l.Process(replicaName("netmaster", n+1)).Stop(startTimeout); err != nil {
			return err
		}
		if err := l.startReplica(ctx, n+1, flags); err != nil {
			return err
		}
	}
	return nil
}

// JoinFlags are the flags by which a host joins a secure cluster that it has no certificate of.
func (h *Host) JoinFlags(ctx context.Context) ([]string, error) {
	if _, err := os.Stat(filepath.Join(h.StateDir(), "tls")); err == nil || !h.lab.st.Config.Secure {
		return nil, nil
	}
	token, err := h.lab.Masters.Netctl(ctx, "cluster", "token", "-q", "--host", h.Name)
	if err != nil {
		return nil, fmt.Errorf("a token for %s: %w: %s", h.Name, err, token)
	}
	return []string{"--join", h.lab.Masters.joinAddress(), "--token", strings.TrimSpace(token)}, nil
}

// issueAdmin has the first netmaster's authority make the administrator's certificate.
func (l *certificates) issueAdmin(ctx context.Context) error {
	if _, err := os.Stat(l.adminDir()); err == nil || !l.st.Config.Secure {
		return nil
	}
	return l.pki(ctx, "issue", filepath.Dir(filepath.Dir(l.adminDir())), adminName, "--role", "cluster-admin")
}

// adminName is the administrator as whom Netctl asks by TLS.
const adminName = "admin"

// adminDir has the administrator's certificate.
func (l *certificates) adminDir() string {
	if l.st.Config.Secure {
		return filepath.Join(l.st.dataDir(1), "join", "clients", "issued", adminName)
	}
	return l.certificate(adminName)
}

// certificate is the directory of a certificate of the operator's own authority.
func (l *certificates) certificate(name string) string {
	return filepath.Join(l.st.Config.Dir, "pki", "issued", name)
}

// makePKI makes the operator's own authority and the certificates of all.
func (l *certificates) makePKI(ctx context.Context) error {
	dir := filepath.Join(l.st.Config.Dir, "pki")
	lines := [][]string{{"init", dir}, {"issue", dir, adminName, "--role", "cluster-admin"}}
	for n := range l.st.Config.Replicas {
		lines = append(lines, []string{"issue", dir, replicaName("netmaster", n+1), "--role", "netmaster", "--addresses", replicaAddress(n + 1).String()})
	}
	for _, h := range l.hosts {
		lines = append(lines, []string{"issue", dir, h.Name, "--role", "host", "--addresses", h.Control.String() + "," + h.Address.String()})
	}
	for _, line := range lines {
		if err := l.pki(ctx, line...); err != nil {
			return err
		}
	}
	return nil
}

func (l *certificates) pki(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := l.Master.Command(ctx, filepath.Join(l.st.Config.BinDir, "netctl"), append([]string{"pki"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("netctl pki %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// joinAddress is where netmasters and hosts join.
func (l *Masters) joinAddress() string { return net.JoinHostPort(replicaAddress(1).String(), "9005") }

// restTLS and storeTLS tell whether netmaster's REST interface, and the store, speak TLS.
func (l *certificates) restTLS() bool {
	return l.st.Config.Secure || l.st.Config.TLS == TLSOwn
}

func (l *certificates) storeTLS() bool {
	return l.st.Config.Secure || l.st.Config.TLS != "" && l.st.Config.Consul == ""
}

// masterTLS, etcdTLS and tls are the flags of the n-th netmaster and etcd, and of a host.
func (l *certificates) masterTLS(n int) []string {
	flags := l.tlsFlags(replicaName("netmaster", n))
	if l.st.Config.Secure {
		flags = append(flags, "--secure")
	}
	return flags
}

func (l *certificates) etcdTLS(n int) []string {
	if !l.storeTLS() {
		return nil
	}
	dir := l.certificate(replicaName("netmaster", n))
	return []string{"--client-cert-auth", "--trusted-ca-file", filepath.Join(dir, pki.BundleFile), "--cert-file", filepath.Join(dir, "tls.crt"), "--key-file", filepath.Join(dir, "tls.key")}
}

func (l *certificates) tlsFlags(name string) (flags []string) {
	if l.st.Config.TLS == TLSOwn {
		flags = append(flags, "--tls-dir", l.certificate(name))
	}
	if l.st.Config.TLS != "" && l.st.Config.Consul == "" && (!l.restTLS() || strings.HasPrefix(name, "netmaster")) { // hosts with a certificate ask no store
		flags = append(flags, "--store-tls-dir", l.certificate(name))
	}
	return flags
}

// admin is what asks netmaster or a host as the administrator; nil without TLS.
func (l *certificates) admin(server pki.Role) (*tls.Config, error) {
	if !l.restTLS() {
		return nil, nil
	}
	return clientConfig(l.adminDir(), server)
}

// storeAdmin is what asks an etcd process as the administrator; nil without TLS.
func (l *certificates) storeAdmin() (*tls.Config, error) {
	if !l.storeTLS() {
		return nil, nil
	}
	return clientConfig(l.certificate(adminName), pki.Netmaster)
}

func clientConfig(dir string, server pki.Role) (*tls.Config, error) {
	d, err := transport.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	return d.Client(server), nil
}

func scheme(byTLS bool) string {
	if byTLS {
		return "https"
	}
	return "http"
}
