package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

func statusCommand(name *string) *command {
	return newCommand("status", "The lab's daemons, hosts and containers", name, func(ctx context.Context, _ []string) error {
		return open(*name, func(l *testcluster.Lab) error {
			w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "DAEMON\tPID\tSTATE\tLOG")
			procs := l.Processes()
			names := make([]string, 0, len(procs))
			for n := range procs {
				names = append(names, n)
			}
			sort.Strings(names)
			for _, n := range names {
				state := "running"
				if !procs[n].Alive() {
					state = "ended"
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", n, procs[n].PID, state, procs[n].Log)
			}
			fmt.Fprintln(w, "\nHOST\tADDRESS\tDRIVER\tREADY FOR CONTAINERS")
			for _, h := range l.Hosts() {
				ready := "yes"
				if err := h.Status(ctx); err != nil {
					ready = "no: " + err.Error()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", h.Name, h.Address, h.Driver(), ready)
			}
			fmt.Fprintln(w)
			containers(w, l)
			return w.Flush()
		})
	})
}

// containers writes the table of containers.
func containers(w *tabwriter.Writer, l *testcluster.Lab) {
	fmt.Fprintln(w, "CONTAINER\tHOST\tTENANT\tNETWORK\tGROUP\tADDRESSES\tLISTENS ON")
	for _, a := range l.Containers() {
		addrs := []string{}
		if a.IPv4.IsValid() {
			addrs = append(addrs, a.IPv4.String())
		}
		if a.IPv6.IsValid() {
			addrs = append(addrs, a.IPv6.String())
		}
		group := a.Group
		if group == "" {
			group = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Name, a.Host, a.Tenant, a.Network, group,
			strings.Join(addrs, " "), strings.Join(a.Listen, " "))
	}
}
