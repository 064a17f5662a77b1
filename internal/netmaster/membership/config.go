package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// Config says which member this process is.
type Config struct {
	Dir               string           // the data directory; made when missing
	Name              string           // unique in the cluster; "" = the directory's, or a new one the host's
	Client            string           // IP:port for clients of the store; "" = etcd.DefaultListen, port 0 = any free one
	Peer              string           // host:port by which other members reach this one; "" = none does, it is alone
	EnrollmentAddress string           // host:port by which new members, and members, ask this one; as Peer
	Quota             int64            // bytes of the database; 0 = DefaultQuota
	Logger            *slog.Logger     // required
	Backup            Schedule         // snapshots; the zero value makes none
	TLS               *transport.Files // what clients are served with; nil = plain

	PeerListen, EnrollmentListen string // IP:port to listen on; "" = Peer, Door
	// Spare: no flag has asked for the two, and a member that is alone does without where
	// another process has them.
	Spare bool

	// Secure are the names and addresses by which clients connect, which the member gets
	// a certificate for and serves them with (see ClientsDir); nil = TLS says how.
	Secure []string
	// Plain are IP:port where clients are let in without TLS and may all, beside who shows
	// a certificate where Client is one of them: while a cluster is turned secure.
	Plain []string

	// TokenReviewer tells of which host, and by whom, a service account's token is that a host
	// shows in place of one of ours: errors are model.ErrInvalid, or model.ErrUnavailable
	// where that is not known now. nil = no such token is taken.
	TokenReviewer func(ctx context.Context, token string) (host, by string, err error) `json:"-"`

	// Forming is how netmasters in pods found their cluster, and join it, without tokens of the
	// cluster; nil = they do not.
	Forming Forming `json:"-"`

	// Store is an etcd of the user's own with the rows of members, which then run none: they
	// share the authorities, let hosts and netmasters in, and are replaced as members are.
	// Start does not close it. nil = each member runs the store.
	Store *clientv3.Client `json:"-"`

	// Addresses and Token are the command line's --join and --token: where neither is
	// given, a new directory founds a cluster. Doors of the token are asked too.
	Addresses []string
	Token     string

	alone bool         // it opens no peer port
	why   error        // of alone: what has its ports
	step  func(string) // of tests: what was just done
}

func (c Config) at(step string) {
	if c.step != nil {
		c.step(step)
	}
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return model.InvalidField("member-name", name, "must be 1 to 64 letters, digits, dots, hyphens and underscores, the first a letter or digit")
	}
	return nil
}

// checked fills in what is left out, and refuses what cannot be, before anything is
// changed.
func (c Config) checked(ctx context.Context) (Config, error) {
	if c.Client == "" {
		c.Client = etcd.DefaultListen
	}
	if c.PeerListen == "" {
		c.PeerListen = c.Peer
	}
	if c.EnrollmentListen == "" {
		c.EnrollmentListen = c.EnrollmentAddress
	}
	if c.Quota == 0 {
		c.Quota = DefaultQuota
	}
	if c.Name != "" {
		if err := checkName(c.Name); err != nil {
			return c, err
		}
	}
	if c.Forming != nil {
		if err := checkName(c.Forming.Node()); err != nil {
			return c, err
		}
	}
	var err error
	if c.Store != nil { // no peer port: a member is known by its enrolment server
		c.Peer, c.PeerListen, c.Backup, c.Spare = c.EnrollmentAddress, c.EnrollmentListen, Schedule{}, false
	} else if c.Client, err = clientAddress(ctx, c.Client); err != nil {
		return c, err
	}
	for _, p := range c.Plain {
		if err := checkListen("etcd-listen", p); err != nil {
			return c, err
		}
	}
	if c.Peer == "" && c.EnrollmentAddress == "" {
		return c.withoutPeerPorts(), c.Backup.check()
	}
	if err := errors.Join(jointoken.CheckAddress(c.Peer), jointoken.CheckAddress(c.EnrollmentAddress)); err != nil {
		return c, err
	}
	for _, a := range c.Addresses {
		if err := jointoken.CheckAddress(a); err != nil {
			return c, err
		}
	}
	for _, l := range []struct{ field, addr string }{{"peer-listen", c.PeerListen}, {"join-listen", c.EnrollmentListen}} {
		if err := checkListen(l.field, l.addr); err != nil {
			return c, err
		}
		ln, err := transport.Listen(ctx, l.addr, nil, c.Logger)
		if err != nil && c.Spare {
			c.alone, c.why = true, err
			continue
		}
		if err != nil {
			return c, model.Errorf(model.ErrConflict, "%w: stop the process that uses the address, or give another address of this host", err)
		}
		if err := ln.Close(); err != nil {
			return c, err
		}
	}
	return c, c.Backup.check()
}

// checkListen refuses an address that no process can listen on.
func checkListen(field, a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || net.ParseIP(host) == nil || port == "" || port == "0" {
		return model.InvalidField(field, a, "must be an IP address and a port of this host")
	}
	return nil
}
