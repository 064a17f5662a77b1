// Package docker tests Contiv with real Docker Engines: each simulated host of
// internal/lab runs a dockerd of its own, in the host's network namespace and a
// mount namespace in which /run/docker/plugins is the host's own directory.
//
// It needs root and the packages of tools/deps.sh (docker.io, openvswitch-switch,
// etcd-server, busybox-static); run it with go test -tags integration. It starts
// no service of the machine and changes neither its network nor its iptables:
// the engines run with iptables switched off.
package docker
