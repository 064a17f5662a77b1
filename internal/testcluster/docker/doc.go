// Package docker runs real Docker engines on the hosts of package testcluster, each in its
// host's network namespace and in its own mount and process namespaces (the box). It
// guarantees that an engine finds only its own host's plugins, that the box outlives
// dockerd as a machine does, and that everything inside ends with the box. It must not
// touch the machine's own engine, its network or its iptables. It is called by contivlab,
// test/docker, test/matrix, the chaos ledger and the Kubernetes demo. Start with Engine.
package docker
