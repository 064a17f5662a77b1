package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/pki"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// Secure restarts a cluster whose one netmaster keeps the store itself with --secure. Each
// host joins by a token of its own; from then on Netctl asks as a cluster administrator,
// and what is started speaks TLS.
func (l *Lab) Secure(ctx context.Context) error {
	if !l.st.Config.Embedded || l.st.Config.Replicas > 1 {
		return fmt.Errorf("lab %s: it is secured with one netmaster that keeps the store itself", l.st.Config.Name)
	}
	for _, h := range l.Hosts() {
		if err := h.Agent().Stop(startTimeout); err != nil {
			return err
		}
	}
	if err := l.Process("netmaster").Stop(startTimeout); err != nil {
		return err
	}
	l.mu.Lock()
	l.st.Secure = true
	err := l.save()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	p, err := l.LaunchReplica(1, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*startTimeout)
	defer cancel()
	if err := p.ready(ctx, "the authority of netmaster", func(ctx context.Context) error {
		return l.netctl(ctx, "pki", "issue", filepath.Dir(filepath.Dir(l.adminDir())), adminName, "--role", "cluster-admin")
	}); err != nil {
		return err
	}
	if err := p.ready(ctx, "netmaster to serve by TLS", func(ctx context.Context) error {
		_, err := l.Netctl(ctx, "tenant", "ls")
		return err
	}); err != nil {
		return err
	}
	for _, h := range l.Hosts() {
		token, err := l.Netctl(ctx, "cluster", "token", "-q", "--host", h.Name)
		if err != nil {
			return fmt.Errorf("a token for %s: %w: %s", h.Name, err, token)
		}
		p, err := h.LaunchAgentWith([]string{"--join", net.JoinHostPort(replicaAddress(1).String(), "9005"), "--token", strings.TrimSpace(token)})
		if err != nil {
			return err
		}
		if err := h.WaitAgent(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// adminName is the administrator as whom Netctl asks a secure cluster.
const adminName = "admin"

// adminDir has the administrator's certificate.
func (l *Lab) adminDir() string {
	return filepath.Join(l.dataDir(1), "join", "clients", "issued", adminName)
}

func (l *Lab) netctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := l.Master.Command(ctx, filepath.Join(l.st.Config.BinDir, "netctl"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("netctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// tls is what asks a server of a role as the administrator; nil while the cluster is plain.
func (l *Lab) tls(server pki.Role) (*tls.Config, error) {
	if !l.st.Secure {
		return nil, nil
	}
	d, err := transport.OpenDirectory(l.adminDir())
	if err != nil {
		return nil, err
	}
	return d.Client(server), nil
}

// scheme is that of the addresses of netmaster and its store.
func (l *Lab) scheme() string {
	if l.st.Secure {
		return "https"
	}
	return "http"
}
