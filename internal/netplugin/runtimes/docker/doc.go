// Package docker lets a Docker engine use Contiv's networks: it serves
// libnetwork's remote driver protocol for networks and addresses on a unix
// socket, and keeps the engine's list of networks equal to the cluster's
// networks and groups through the engine's HTTP interface.
//
// It guarantees that every call is answered (an unknown one with an error), that
// Docker's network ids are known again after a restart, and that no plugin call
// waits for the engine, which would deadlock.
//
// It must not know the store, the data plane or netmaster: it turns Docker's verbs
// into calls of its Backend, whose attachments are attach requests.
package docker
