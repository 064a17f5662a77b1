// Package docker runs real Docker Engines on the simulated hosts of package
// lab: each host has a dockerd of its own, in the host's network namespace and
// in a mount and process namespace (the box) in which /run/docker is the
// engine's own.
//
// It guarantees that an engine finds only its own host's plugins, that its box
// outlives dockerd as a machine does, and that everything inside ends with the
// box: engines, containers, mounts.
//
// It must not start or configure the machine's own engine, and changes neither
// its network nor its iptables.
package docker
