package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// manyFlows are round trips of one byte in side x side flows in turn, as a proxy
// or a name server has them: each of side UDP sockets speaks to each of as many.
// The first two times around make them known, both ways, and the third one is
// measured: each flow has rested for as long as all others take once.
func manyFlows(side int) metric {
	return metric{
		name: fmt.Sprintf("round trip of 1 byte, %d flows in turn", side*side), unit: "µs",
		run: oneByOne(func(p path, _ time.Duration) (_ float64, err error) {
			m, err := openMesh(p, side)
			if err != nil {
				return 0, wrap(p, err)
			}
			defer func() { err = errors.Join(err, m.close()) }()
			if _, err := m.exchange(2 * side * side); err != nil {
				return 0, wrap(p, err)
			}
			took, err := m.exchange(side * side)
			if err != nil {
				return 0, wrap(p, err)
			}
			return stats.Median(took) / batch, nil
		}),
	}
}

// mesh is UDP sockets at both ends of a path. Both ends go through the flows in
// the same order, so that each knows at which socket the next byte comes.
type mesh struct {
	path
	clients, servers []int
	next             int // flow, of the client's end
	served           chan error
}

// The first ports of both ends.
const clientPorts, serverPorts = 10000, 20000

func openMesh(p path, side int) (m *mesh, err error) {
	m = &mesh{path: p, served: make(chan error, 1)}
	open := func(ns *testcluster.Namespace, first int, to *[]int) error {
		return ns.Do(func() error {
			for i := range side {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				*to = append(*to, fd)
				limit := unix.Timeval{Sec: 5}
				if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
					unix.Bind(fd, &unix.SockaddrInet4{Port: first + i})); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := errors.Join(open(p.client, clientPorts, &m.clients), open(p.server, serverPorts, &m.servers)); err != nil {
		m.shut()
		return nil, err
	}
	go func() { m.served <- onCPU(p.server, 1, m.serve) }()
	return m, nil
}

// flow returns the ends of the n-th exchange.
func (m *mesh) flow(n int) (client, server int) {
	side := len(m.clients)
	return n % side, n / side % side
}

// serve sends back each datagram, until an empty one comes.
func (m *mesh) serve() error {
	b := make([]byte, 1)
	for n := 0; ; n++ {
		_, s := m.flow(n)
		var from unix.RawSockaddrInet4
		if k, err := receive(m.servers[s], b, &from); k == 0 || err != nil {
			return err
		}
		if err := send(m.servers[s], b, &from); err != nil {
			return err
		}
	}
}

// exchange sends one byte to and fro in at least n flows, and returns what each batch
// of exchanges took, in microseconds. Both ends run on one processor.
func (m *mesh) exchange(n int) (took series, err error) {
	return took, onCPU(m.client, 1, func() error {
		b := make([]byte, 1)
		for end := m.next + n; m.next < end; {
			start := time.Now()
			for range batch {
				if err := m.once(b); err != nil {
					return err
				}
			}
			took = append(took, float64(time.Since(start).Nanoseconds())/1000)
		}
		return nil
	})
}

func (m *mesh) once(b []byte) error {
	c, s := m.flow(m.next)
	m.next++
	if err := send(m.clients[c], b, address(m.addr, uint16(serverPorts+s))); err != nil {
		return err
	}
	_, err := receive(m.clients[c], b, &unix.RawSockaddrInet4{})
	return err
}

func (m *mesh) close() error {
	c, s := m.flow(m.next)
	err := send(m.clients[c], nil, address(m.addr, uint16(serverPorts+s)))
	err = errors.Join(err, <-m.served)
	m.shut()
	return wrap(m.path, err)
}

func (m *mesh) shut() {
	for _, fd := range slices.Concat(m.clients, m.servers) {
		shut(fd)
	}
}
