package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func probeCommand(name *string) *command {
	timeout := 500 * time.Millisecond
	c := newCommand("probe", "Ask whether one container reaches another: TO is a container or an address, PORT tcp/80, udp/53 or icmp", name, func(ctx context.Context, args []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			ns, err := findNamespace(l, args[0])
			if err != nil {
				return err
			}
			addrs := []netip.Addr{}
			if a, err := netip.ParseAddr(args[1]); err == nil {
				addrs = append(addrs, a)
			} else if to, err := l.Container(args[1]); err == nil {
				for _, a := range []netip.Addr{to.IPv4, to.IPv6} {
					if a.IsValid() {
						addrs = append(addrs, a)
					}
				}
			} else {
				return fmt.Errorf("%q is neither an address nor a container; contivlab status lists them", args[1])
			}
			proto, port, _ := strings.Cut(args[2], "/")
			n, err := strconv.ParseUint(port, 10, 16)
			if proto != "icmp" && (err != nil || proto != "tcp" && proto != "udp") {
				return fmt.Errorf("port %q: must be tcp/N, udp/N or icmp", args[2])
			}
			for _, a := range addrs {
				t := testcluster.Target{Proto: proto, Addr: a, Port: uint16(n)}
				answer := ns.Probe(ctx, t, timeout)
				if answer.Err != nil {
					return answer.Err
				}
				line := fmt.Sprintf("%s -> %s: %s after %.1f ms", args[0], t, answer.Verdict, float64(answer.Took.Microseconds())/1000)
				if answer.From != "" {
					line += ", answered by " + answer.From
				}
				fmt.Println(line)
			}
			return nil
		})
	})
	c.flags.Duration(&timeout, "timeout", "how long silence counts as waiting")
	return c.takes("FROM TO PORT", 3, 3)
}

// serveCommand answers probes in all containers of a lab that was left running. The demo
// starts it; users need not know it.
func serveCommand(name *string) *command {
	return newCommand("serve", "", name, func(ctx context.Context, _ []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			if err := serveAll(l); err != nil {
				return err
			}
			<-ctx.Done()
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil
			}
			return ctx.Err()
		})
	})
}

// serveAll opens what each container's specification lists.
func serveAll(l *testcluster.Lab) error {
	for _, a := range l.Containers() {
		if _, err := l.Serve(a.Name, a.Listen...); err != nil {
			return err
		}
	}
	return nil
}
