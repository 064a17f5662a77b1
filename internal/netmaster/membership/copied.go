package membership

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// copyCheckTimeout is how long a former address may take to show who is there.
const copyCheckTimeout = 3 * time.Second

// checkNotCopied refuses a directory whose member answers at the address that the directory had
// before. This directory is then a copy, such as a cloned machine's, and two processes that
// vote as one member break the cluster. If no member or another member answers there, this
// member has moved.
func (m *Member) checkNotCopied(ctx context.Context) error {
	was := m.dir.Peer
	if was == "" || m.cfg.Peer == "" || was == m.cfg.Peer {
		return nil
	}
	own, err := transport.OpenDirectory(m.peers.own)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, copyCheckTimeout)
	defer cancel()
	d := tls.Dialer{NetDialer: new(net.Dialer), Config: own.Client(pki.Netmaster)}
	c, err := d.DialContext(ctx, "tcp", was)
	if err != nil {
		return nil // no member of this cluster is there
	}
	defer func() { _ = c.Close() }() // of which nothing was asked
	if name := c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; name != m.dir.Name {
		return nil
	}
	return model.Errorf(model.ErrConflict, "the member %s is alive at %s, and %s is a copy of its data directory, such as of a cloned machine: on the copy begin with an empty directory, another --member-name and a token; to move the member here, stop it there first", m.dir.Name, was, m.dir.path)
}
