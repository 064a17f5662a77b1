// Package docker serves libnetwork's remote driver protocol to a Docker engine, and keeps
// the engine's networks equal to the cluster's networks and groups. It guarantees an answer
// to every call, that Docker's network ids are known after a restart, and that no plugin
// call waits for the engine, which would deadlock. It must not know the store, the data
// plane or netmaster: it translates Docker's verbs into calls of its Backend. It is called
// by cmd/netplugin, and by cmd/netmaster for Swarm's networks. Start with Plugin.
package docker
