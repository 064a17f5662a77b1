package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
)

// nowhere is the address of a member that is alone and listens for no peers: etcd
// wants one, and it is replaced when the member gets one by which others reach it.
const nowhere = "localhost:2380"

// clientAddress returns the address for clients with its port filled in, or an error
// that names both choices when something answers there.
func clientAddress(ctx context.Context, addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.ParseIP(host) == nil || port == "" {
		return "", model.InvalidField("etcd-listen", addr, "must be ip:port, such as "+etcd.DefaultListen)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "", model.Errorf(model.ErrConflict,
			"start embedded etcd: %s listens on %s already; use it with --etcd-endpoints http://%s, or let the embedded one listen elsewhere with --etcd-listen HOST:PORT",
			describeListener(ctx, addr), addr, addr)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "", model.Errorf(model.ErrInvalid, "start embedded etcd: this host does not have the address of %s; give one that it has with --etcd-listen HOST:PORT", addr)
	case err != nil:
		return "", fmt.Errorf("start embedded etcd: %w", err)
	}
	defer func() { _ = l.Close() }() // it only looked
	return l.Addr().String(), nil
}

// describeListener says what answers at an address, as well as can be seen.
func describeListener(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/version", nil)
	if err != nil {
		return "something"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "something"
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	var v struct {
		Server string `json:"etcdserver"`
	}
	if json.NewDecoder(resp.Body).Decode(&v) != nil || v.Server == "" {
		return "something"
	}
	return "an etcd " + v.Server
}

// closePeerPorts closes the peer ports of a member that is alone, because other processes have
// them and no flag asked for them.
func (m *Member) closePeerPorts(why error) error {
	if err := m.checkAlone(); err != nil {
		return errors.Join(err, why)
	}
	m.cfg = m.cfg.withoutPeerPorts()
	m.cfg.Logger.Warn("no other netmaster can join this one: it does not listen for members", "why", why,
		"remedy", "give free addresses with --peer-listen and --join-listen and start again, or --peer-listen none if none is to join")
	return nil
}

// withoutPeerPorts is the configuration of a member without peer ports.
func (c Config) withoutPeerPorts() Config {
	c.alone = true
	c.Peer, c.EnrollmentAddress, c.PeerListen, c.EnrollmentListen = nowhere, "", "", ""
	return c
}

// checkAlone refuses to be alone with a directory of a cluster of several.
func (m *Member) checkAlone() error {
	d := m.dir
	if m.cfg.Token != "" || d.Step == requested || d.Step == admitted || d.Step == learner {
		return model.Errorf(model.ErrInvalid, "joining needs addresses by which the other members reach this one: give --peer-listen and --join-listen")
	}
	if d.empty() {
		return nil
	}
	r, err := ReachOf(d.path)
	if err != nil {
		return err
	}
	if r.Members > 1 {
		return model.Errorf(model.ErrConflict, "%s belongs to a cluster of %d members, which must reach this one: give --peer-listen and --join-listen", d.path, r.Members)
	}
	return nil
}
