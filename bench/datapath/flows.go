package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// manyFlows are round trips of one byte in side x side flows in turn, as a proxy
// or a name server has them: each of side UDP sockets speaks to each of as many.
// All flows are known when the measurement begins, which comes to each of them
// once at least; it takes as long as that takes.
func manyFlows(side int) metric {
	m := metric{name: fmt.Sprintf("round trip of 1 byte, %d flows in turn", side*side), unit: "µs"}
	m.run = func(paths []path, _ time.Duration) (took []float64, err error) {
		var all []*mesh
		defer func() {
			for _, m := range all {
				err = errors.Join(err, m.close())
			}
		}()
		for _, p := range paths {
			m, err := openMesh(p, side)
			if err != nil {
				return nil, wrap(p, err)
			}
			all = append(all, m)
		}
		batches := make([][]time.Duration, len(all))
		part := (side*side + turns - 1) / turns
		for turn := range 2 * turns {
			for i, m := range all {
				more, err := m.exchange(part)
				if err != nil {
					return nil, wrap(m.path, err)
				}
				if turn >= turns { // the first time around they are made known
					batches[i] = append(batches[i], more...)
				}
			}
		}
		for _, b := range batches {
			slices.Sort(b)
			took = append(took, float64(b[len(b)/2].Nanoseconds())/1000/batch)
		}
		return took, nil
	}
	return m
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
	open := func(ns *lab.Namespace, first int, to *[]int) error {
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

// serve sends back what comes, until nothing does: an empty datagram.
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

// exchange sends one byte to and fro in at least n flows, and returns what each
// batch of them took. Both ends run on one processor.
func (m *mesh) exchange(n int) (took []time.Duration, err error) {
	return took, onCPU(m.path.client, 1, func() error {
		b := make([]byte, 1)
		for end := m.next + n; m.next < end; {
			start := time.Now()
			for range batch {
				if err := m.once(b); err != nil {
					return err
				}
			}
			took = append(took, time.Since(start))
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
