package netctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
)

// errUnhealthy makes status exit with ExitUnhealthy.
var errUnhealthy = errors.New("there are problems")

// statusTimeout is when status gives up on a netmaster, unless --timeout says
// otherwise: a netmaster that waits for its store tells so sooner.
const statusTimeout = 9 * time.Second

type statusOptions struct {
	common
}

func newStatus(base common) *command {
	o := &statusOptions{common: base}
	c := &command{
		name:     "status",
		short:    "Show on one screen how the cluster is: netmasters, store, hosts, capacity, and what is wrong",
		examples: []string{"netctl status", "netctl status --json", "netctl status --quiet || page-somebody"},
	}
	c.flags.Bool(&o.json, "json, j", "print the status as JSON")
	c.flags.Bool(&o.quiet, "quiet, q", fmt.Sprintf("print what is wrong only; the exit code is %d then", ExitUnhealthy))
	c.run = bindRun(o, runStatus, nil)
	return c
}

func runStatus(ctx context.Context, o *statusOptions) error {
	o.globals.timeout = cmp.Or(o.globals.timeout, statusTimeout)
	client, err := o.client()
	if err != nil {
		return err
	}
	s, err := client.Status(ctx)
	if err != nil {
		return err
	}
	for _, f := range judgeReplicas(ctx, client, s.Findings) {
		s.Findings, s.Wrong, s.Well = slices.Insert(s.Findings, 0, f), append(s.Wrong, f.String()), false
	}
	switch {
	case o.json:
		err = printJSON(o.out, s)
	case o.quiet:
		err = printLines(o.out, s.Wrong)
	default:
		err = o.show(s)
	}
	if err == nil && !s.Well {
		err = errUnhealthy
	}
	return err
}

func (o *statusOptions) show(s api.ClusterStatus) error {
	if s.Tenants == nil {
		if err := o.showServers(s); err != nil {
			return err
		}
	}
	if err := o.printItems(hostColumns.items(s.Hosts...)); err != nil {
		return err
	}
	var pools []string
	for _, p := range s.Pools {
		pools = append(pools, fmt.Sprintf("%s %d of %d", p.Name, p.Used, p.Size))
	}
	taken, of := "", ""
	if len(pools) > 0 {
		taken = "; taken: " + strings.Join(pools, ", ")
	}
	if s.Tenants != nil {
		of = " of " + strings.Join(s.Tenants, ", ")
	}
	fmt.Fprintf(o.out, "\nHosts %d, endpoints%s %d%s\n", len(s.Hosts), of, s.Endpoints, taken)
	if text := comparedText(s); text != "" {
		fmt.Fprintln(o.out, text)
	}
	for _, f := range s.Findings {
		if word := lessSevere[f.Severity]; word != "" {
			fmt.Fprintln(o.out, wrap(word+": "+f.String(), "  ", o.columns))
		}
	}
	if s.Well {
		return printLines(o.out, []string{"All is well."})
	}
	if err := printLines(o.out, []string{"Not all is well:"}); err != nil {
		return err
	}
	for _, w := range s.Wrong {
		fmt.Fprintln(o.out, wrap("  "+w, "    ", o.columns))
	}
	return nil
}

// comparedText says when the data planes of hosts were compared with their desired state;
// empty = no host is alive, or it is not shown.
func comparedText(s api.ClusterStatus) string {
	oldest, at := int64(-1), ""
	var away []string
	for _, h := range s.Hosts {
		switch {
		case s.Tenants != nil:
		case h.State != api.HostAlive:
			away = append(away, h.Name)
		case h.VerifiedAge < 0:
			return "The data plane of host " + h.Name + " has not been compared with its desired state yet"
		case h.VerifiedAge > oldest:
			oldest, at = h.VerifiedAge, h.Name
		}
	}
	if oldest < 0 {
		return ""
	}
	text := fmt.Sprintf("Data planes were compared with their desired state within the last %d s (the oldest on host %s)", oldest, at)
	if away != nil {
		text += "; not compared, since away: " + someOf(away)
	}
	return text
}

// showServers shows the netmasters and the store.
func (o *statusOptions) showServers(s api.ClusterStatus) error {
	if err := o.printItems(netmasters.items(s.Masters...)); err != nil {
		return err
	}
	fmt.Fprintln(o.out)
	if err := o.printItems(storeServers.items(s.Stores...)); err != nil {
		return err
	}
	fmt.Fprintln(o.out)
	return nil
}

var netmasters = columns[api.Master]{
	header: []string{"Netmaster", "On", "Role", "Version"},
	row:    func(m api.Master) []string { return []string{m.Address, m.Host, m.Role, textOrUnknown(m.Version)} },
}

var storeServers = columns[api.StoreServer]{
	header: []string{"Store", "State", "Version", "Size", "Answers in"}, row: storeRow,
}

func storeRow(x api.StoreServer) []string {
	state := "follows"
	switch {
	case x.Error != "":
		return []string{x.Address, "does not answer"}
	case len(x.Alarms) > 0:
		state, _, _ = strings.Cut(x.Alarms[0], ":") // below, a finding says what it means
	case x.Leads:
		state = "leads"
	}
	size := ""
	if x.Size > 0 {
		size = formatMebibytes(x.Size) + " MiB"
	}
	if x.Quota > 0 {
		size += fmt.Sprintf(" of %d", x.Quota>>20)
	}
	return []string{x.Address, state, x.Version, size, fmt.Sprintf("%.1f ms", x.Took*1000)}
}

// reportedByState are the conditions that a host's state names.
var reportedByState = map[string]string{condition.HostUnconfirmedChange.Name(): "unconfirmed change", condition.HostRolledBack.Name(): "rolled back"}

// lessSevere are the words before findings that do not count as wrong.
var lessSevere = map[string]string{api.SeverityWarning: "Warning", api.SeverityNotice: "Notice"}

func hostRow(h api.Host) []string {
	state := h.State
	switch {
	case h.State != api.HostAlive || h.Ready:
	case h.Age < 0: // as soon after a restore: status has a notice of it
		state = "no report yet"
	default:
		state = "not ready"
	}
	if h.State == api.HostAway && h.AwaySeconds > 0 {
		state += " for " + (time.Duration(h.AwaySeconds) * time.Second).String()
	}
	states := []string{state}
	for _, c := range h.Conditions {
		if told := reportedByState[c.Name]; told != "" {
			states = append(states, told)
		}
	}
	if h.Draining {
		states = append(states, "drains")
	}
	word := "never"
	if h.Age >= 0 {
		word = (time.Duration(h.Age) * time.Second).String() + " ago"
	}
	version, ports := textOrUnknown(h.Version), number(h.Ports)
	if h.Tenants != nil { // who asks does not see them
		version, ports = "", ""
	}
	if h.Pending > 0 {
		ports += fmt.Sprintf(" (%d pending)", h.Pending)
	}
	return []string{h.Name, strings.Join(states, ", "), word, h.Driver, version, h.VTEP, strconv.Itoa(h.Endpoints), ports, fullestTable(h.Tables)}
}

// fullestTable names the table of a host that has the least room.
func fullestTable(tables map[string]api.TableFill) string {
	best, share := "", -1.0
	for name, t := range tables {
		if t.Capacity == 0 {
			continue
		}
		if s := float64(t.Entries) / float64(t.Capacity); s > share || s == share && name < best {
			best, share = name, s
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("%s %.0f %%", best, 100*share)
}
