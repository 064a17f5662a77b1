// Package docker tests Contiv with real Docker Engines: each simulated host of
// internal/testcluster runs a dockerd of its own, in the host's network namespace and in
// mount and process namespaces of its own (internal/testcluster/docker).
//
// It needs root and the packages of tools/deps.sh (docker.io, openvswitch-switch,
// etcd-server, busybox-static,
// docker-compose, systemd); run it with go test -tags integration. It starts
// no service of the machine and changes neither its network nor its iptables.
package docker
