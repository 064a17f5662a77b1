package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func matrixCommand(name *string) *command {
	return newCommand("matrix", "Try every container against every other of its network and compare with the intent", name, func(ctx context.Context, _ []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			start := time.Now()
			rows, err := l.Matrix(ctx, allPairs(l))
			if err != nil {
				return err
			}
			return printMatrix(l, rows, nil, time.Since(start))
		})
	})
}

// parseProbes turns lines such as "web1 db1 tcp/5432 6" into questions.
func parseProbes(l *testcluster.Lab, lines []string) ([]testcluster.Question, error) {
	var qs []testcluster.Question
	for _, line := range lines {
		f := strings.Fields(line)
		to, err := l.Container(f[1])
		if err != nil {
			return nil, err
		}
		addr := to.IPv4
		if len(f) == 4 {
			addr = to.IPv6
		}
		q, err := parseProbe(f[0], f[1], f[2], addr)
		if err != nil {
			return nil, err
		}
		qs = append(qs, q)
	}
	return qs, nil
}

func parseProbe(from, to, port string, addr netip.Addr) (testcluster.Question, error) {
	proto, n, _ := strings.Cut(port, "/")
	q := testcluster.Question{From: from, To: to, Target: testcluster.Target{Proto: proto, Addr: addr}}
	if proto == "icmp" {
		return q, nil
	}
	p, err := strconv.ParseUint(n, 10, 16)
	if err != nil {
		return q, fmt.Errorf("port %q: must be tcp/N, udp/N or icmp", port)
	}
	q.Port = uint16(p)
	return q, nil
}

// allPairs asks all containers about all others of their network, on what
// they listen and by ping, over both families.
func allPairs(l *testcluster.Lab) []testcluster.Question {
	var qs []testcluster.Question
	all := l.Containers()
	for _, from := range all {
		for _, to := range all {
			if from == to || from.Tenant != to.Tenant || from.Network != to.Network {
				continue
			}
			for _, port := range append([]string{"icmp"}, to.Listen...) {
				for _, addr := range []netip.Addr{to.IPv4, to.IPv6} {
					if !addr.IsValid() {
						continue
					}
					if q, err := parseProbe(from.Name, to.Name, port, addr); err == nil {
						qs = append(qs, q)
					}
				}
			}
		}
	}
	return qs
}

// printMatrix prints rows, marks what changed since before, and fails when one
// is not as expected.
func printMatrix(l *testcluster.Lab, rows, before []testcluster.Row, took time.Duration) error {
	host := map[string]string{}
	for _, a := range l.Containers() {
		host[a.Name] = a.Host
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "  FROM\tTO\tHOSTS\tPORT\tADDRESS\tEXPECTED\tSEEN\t")
	wrong := 0
	for i, r := range rows {
		port := r.Proto
		if r.Proto != "icmp" {
			port += "/" + strconv.Itoa(int(r.Port))
		}
		seen, mark := r.Seen.String(), ""
		switch {
		case !r.Right():
			wrong++
			mark = "WRONG"
			if r.Seen.From != "" && r.Seen.From != r.To {
				mark += ": " + r.Seen.From + " answered"
			}
		case i < len(before) && before[i].Seen.Verdict != r.Seen.Verdict:
			mark = "changed"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.From, r.To, host[r.From]+" "+host[r.To], port, r.Addr, r.Expected, seen, mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d answers contradict the intent", wrong, len(rows))
	}
	fmt.Printf("  %d questions, all as expected, in %.1f s\n", len(rows), took.Seconds())
	return nil
}
