//go:build integration

package docker

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// left counts what containers leave behind on a host.
func (b *bed) left() error {
	var errs []error
	for _, e := range b.e {
		links, err := e.host.NS.Links()
		errs = append(errs, err)
		for _, l := range links {
			if strings.HasPrefix(l, "cv") || strings.HasPrefix(l, "cw") {
				errs = append(errs, fmt.Errorf("%s: interface %s", e.host.Name, l))
			}
		}
		files, err := filepath.Glob(filepath.Join(e.host.StateDir(), "attach", "*.json"))
		errs = append(errs, err)
		if len(files) > 0 {
			errs = append(errs, fmt.Errorf("%s: %d journal entries", e.host.Name, len(files)))
		}
		errs = append(errs, e.namesLeft())
		// The engine unmounts a namespace at once, and removes the file within a minute.
		mounts, err := e.Inside(b.t.Context(), "cat", "/proc/self/mounts")
		errs = append(errs, err)
		for line := range strings.Lines(mounts) {
			_, n, ours := strings.Cut(line, " /run/docker/netns/")
			if ours && !strings.HasPrefix(n, "default ") && !strings.HasPrefix(n, "ingress") && !strings.HasPrefix(n, "1-") && !strings.HasPrefix(n, "lb_") { // a swarm's own
				errs = append(errs, fmt.Errorf("%s: network namespace %s", e.host.Name, n))
			}
		}
		if e.host.Driver() != testcluster.DriverOVS {
			errs = append(errs, e.entriesLeft())
			continue
		}
		if n, err := e.countFlows(); err != nil || b.flows != nil && n > b.flows[e.host.Name] {
			errs = append(errs, err, fmt.Errorf("%s: %d flows, %d without containers", e.host.Name, n, b.flows[e.host.Name]))
		}
		ports, err := e.host.Switch.Vsctl(b.t.Context(), "list-ports", "contivBr")
		errs = append(errs, err)
		for p := range strings.FieldsSeq(ports) {
			if strings.HasPrefix(p, "cv") {
				errs = append(errs, fmt.Errorf("%s: port %s", e.host.Name, p))
			}
		}
	}
	c, err := b.Masters.API()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer c.Close()
	nets, err := c.Networks().List(b.t.Context())
	errs = append(errs, err)
	for _, n := range nets {
		i, err := c.Networks().Inspect(b.t.Context(), n.ObjectKey())
		errs = append(errs, err)
		if err == nil && (i.Oper.NumEndpoints != 0 || len(i.Oper.Endpoints) != 0 || i.Oper.AllocatedAddressesCount != 0) {
			errs = append(errs, fmt.Errorf("network %s: %d endpoints, addresses %s", n.ObjectKey(), i.Oper.NumEndpoints, i.Oper.AllocatedIPAddresses))
		}
	}
	return errors.Join(errs...)
}

func (b *bed) nothingLeft() {
	b.t.Helper()
	// A deleted service refuses its clients for a minute, and endpoints that an engine has
	// forgotten are collected after one.
	b.e[0].until("nothing is left", 90*time.Second, b.left)
}

// entriesLeft is an error while the eBPF data plane knows of a container.
func (e *engine) entriesLeft() error {
	var errs []error
	for _, name := range []string{"ports", "privates", "sets", "rules"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(e.host.PinDir(), "maps", name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		first, err := m.NextKeyBytes(nil)
		errs = append(errs, err, m.Close())
		if first != nil {
			errs = append(errs, fmt.Errorf("%s: entries in the map %s, the first is %x", e.host.Name, name, first))
		}
	}
	return errors.Join(errs...)
}

func (e *engine) countFlows() (int, error) {
	text, err := e.host.Switch.Flows(e.t.Context(), "contivBr")
	return strings.Count(text, "cookie="), err
}

// countFlows notes how many flows there are without containers.
func (b *bed) countFlows() {
	b.t.Helper()
	b.flows = map[string]int{}
	for _, e := range b.e {
		if e.host.Driver() != testcluster.DriverOVS {
			continue
		}
		n, err := e.countFlows()
		e.must(err)
		if n == 0 {
			b.t.Fatal("no flow is seen")
		}
		b.flows[e.host.Name] = n
	}
}
