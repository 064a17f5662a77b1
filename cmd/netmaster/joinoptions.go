package main

import (
	"errors"
	"net"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
)

const (
	peerPort  = "9004"
	joinPort  = "9005"
	noMembers = "none"
)

// clusterOptions are the flags of the embedded store's cluster.
type clusterOptions struct {
	join                   []string // enrollment servers of members
	token                  string   // of join
	memberName             string
	peerListen             string // ip:port; none = it stays alone
	joinListen             string
	peer, enrollmentListen string // addresses by which others reach them
	dir                    string // of snapshots
	every                  string
	keep                   int
	recover                bool
	pods                   podMembers
	spare                  bool // no flag has asked for the ports
	schedule               membership.Schedule
}

func (j *clusterOptions) register(fs *flags.Set) {
	fs.Strings(&j.join, "join", "addresses", "--join-listen of the cluster's members, comma-separated: become a member of that cluster; the first start needs an empty data directory and --token (in Kubernetes --member-service-account)")
	fs.String(&j.token, "token", "token", "token for --join, valid once, from 'netctl cluster token' on a member; prefer the environment variable, since other users of this machine can see flags").Must(notEmpty)
	fs.String(&j.memberName, "member-name", "name", "this netmaster's name among the members of the embedded store; it cannot change").Must(notEmpty).Else("the host's")
	fs.String(&j.peerListen, "peer-listen", "ip:port", "where the embedded etcd listens for other members, by mutual TLS with the cluster's own certificates; none = no other members").Must(noneOr(checkIPPort)).Else("<ip of --internal-address>:" + peerPort)
	fs.String(&j.joinListen, "join-listen", "ip:port", "where to accept netmasters and hosts that join with a token, by TLS").Must(checkIPPort).Else("<ip of --peer-listen>:" + joinPort)
	fs.String(&j.peer, "peer-address", "host:port", "the address by which the other members reach --peer-listen").Must(notEmpty).Else("--peer-listen")
	fs.String(&j.enrollmentListen, "join-address", "host:port", "the address by which other netmasters reach --join-listen; tokens name it").Must(notEmpty).Else("--join-listen")
	fs.String(&j.dir, "snapshot-dir", "directory", "where to write snapshots of the embedded store, which --restore reads; best on another disk; none = no snapshots").Else("snapshots in --data-dir")
	j.every, j.keep = membership.DefaultEvery.String(), membership.DefaultKeep
	fs.String(&j.every, "snapshot-every", "duration", "time between two snapshots, such as 30m or 6h").Must(func(v string) error {
		if d, err := time.ParseDuration(v); err != nil || d < time.Minute {
			return errors.New("must be a duration of a minute or more, such as 6h")
		}
		return nil
	})
	fs.IntWithin(&j.keep, "snapshot-keep", "number", "number of snapshots to keep; the oldest are deleted", 1, 10000)
	j.pods.register(fs)
	fs.Bool(&j.recover, "recover", "make a cluster of this data directory's member alone after most members were permanently lost, and exit; no netmaster may be running on it, and the lost members must not return").From("")
}

// noSnapshots is the --snapshot-dir of who wants none.
const noSnapshots = "none"

// joinFlags are the flags that only the embedded store has.
var joinFlags = []string{"join", "token", "member-name", "peer-listen", "join-listen", "peer-address", "join-address", "snapshot-dir", "snapshot-every", "snapshot-keep", "recover", "member-service-account", "join-token-file"}

// finish fills in the addresses: own is this host's, by which others reach it.
func (j *clusterOptions) finish(fs *flags.Set, own string) error {
	switch {
	case j.recover && len(j.join) > 0:
		return flags.Usagef("%s makes a cluster of what this directory has, and %s would join another; give one, or --config none to leave a service's settings out", fs.Given("recover"), fs.Given("join"))
	case len(j.join) > 0 && j.token == "" && j.pods.account == "":
		return flags.Usagef("%s needs a token: make one on a member with 'netctl cluster token' and give it with --token", fs.Given("join"))
	}
	d, err := time.ParseDuration(j.every)
	if err != nil {
		return flags.Usagef("--snapshot-every %q: %w", j.every, err)
	}
	j.schedule = membership.Schedule{Dir: j.dir, Every: d, Keep: j.keep}
	if j.dir == noSnapshots {
		j.schedule = membership.Schedule{}
		for _, flag := range []string{"snapshot-every", "snapshot-keep"} {
			if how := fs.Given(flag); how != "" {
				return flags.Usagef("%s has no effect: %s is none", how, fs.Given("snapshot-dir"))
			}
		}
	}
	if j.peerListen == noMembers {
		for _, flag := range []string{"join", "join-listen", "peer-address", "join-address"} {
			if how := fs.Given(flag); how != "" {
				return flags.Usagef("%s is for netmasters that join, but %s is none; omit one", how, fs.Given("peer-listen"))
			}
		}
		j.peerListen = ""
		return nil
	}
	j.spare = j.token == "" && fs.Given("secure") == ""
	for _, flag := range []string{"peer-listen", "join-listen", "peer-address", "join-address"} {
		j.spare = j.spare && fs.Given(flag) == ""
	}
	setDefault(&j.peerListen, own, peerPort)
	host, _, err := net.SplitHostPort(j.peerListen)
	if err != nil {
		return flags.Usagef("--peer-listen %q: must be ip:port", j.peerListen)
	}
	setDefault(&j.joinListen, host, joinPort)
	for _, a := range []struct {
		advertised *string
		listen     string
	}{{&j.peer, j.peerListen}, {&j.enrollmentListen, j.joinListen}} {
		if *a.advertised != "" {
			continue
		}
		*a.advertised = a.listen
		host, port, err := net.SplitHostPort(a.listen)
		if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
			*a.advertised = net.JoinHostPort(own, port)
		}
	}
	return nil
}

// setDefault sets an address that was not given.
func setDefault(address *string, host, port string) {
	if *address == "" {
		*address = net.JoinHostPort(host, port)
	}
}

// listening are the addresses for other members.
func (j *clusterOptions) listening() []string {
	if j.peerListen == "" {
		return nil
	}
	return []string{j.peerListen, j.joinListen}
}

func noneOr(check func(string) error) func(string) error {
	return func(v string) error {
		if v == noMembers {
			return nil
		}
		return check(v)
	}
}

// member is the configuration of the embedded store.
func (o *options) member() membership.Config {
	j := o.joining
	var plain []string
	if o.plainStore != "" {
		plain = []string{o.plainStore}
	}
	name := j.memberName
	if j.pods.account != "" { // it is the name of a new directory
		name = ""
	}
	return membership.Config{
		Plain: plain, Dir: o.dataDir, Name: name, Client: o.etcdListen, TLS: o.tls.StoreServer, Backup: j.schedule.In(o.dataDir),
		Peer: j.peer, PeerListen: j.peerListen, EnrollmentAddress: j.enrollmentListen, EnrollmentListen: j.joinListen, Spare: j.spare,
		Addresses: j.addresses(), Token: j.token, Secure: o.secureNames(),
	}
}
