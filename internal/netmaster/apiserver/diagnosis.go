package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
)

// facts are what status and doctor judge.
type facts struct {
	now      time.Time
	view     *control.View
	known    []control.HostState
	masters  []api.Master
	health   api.Health             // of the netmaster that answers
	machines map[string]api.Machine // of netmasters, by address; silent ones are in unreachedHosts
	// masterClockOffsets is how far the clocks are ahead of the reporting netmasters.
	masterClockOffsets map[string]time.Duration
	unreachedHosts     map[string]string
	heard              map[string]liveness.StatusArrival // when the last status of hosts came here
	keys               map[string]HostKey                // of hosts' certificates
	inspections        *hostInspections                  // what hosts have told of themselves for this
	asksHosts          bool                              // whether they were asked
	stores             []api.StoreServer
	warnings           []string // of the embedded store's members
	hosts              []api.Host
	pools              []api.Pool
	broken             []analysis.Verdict
	fabric             control.AciFabric
	most               int // how many parts that the fabric does not have are named
}

// judge says what is not as it should be of all that was asked for the doctor.
func (f facts) judge() (out []api.Finding) {
	out = f.judgeCluster()
	for _, m := range sortedKeys(f.machines) {
		out = append(out, f.judgeMachine("netmaster "+m, f.machines[m])...)
		out = append(out, judgeClock(api.CheckNetmasters, "netmaster "+m, f.masterClockOffsets[m])...)
	}
	for _, m := range sortedKeys(f.unreachedHosts) {
		out = append(out, condition.MasterNotAnswering.Finding("netmaster "+m, "it does not report: "+f.unreachedHosts[m]))
	}
	return append(out, f.judgeVersions()...)
}

// judgeCluster says what is not as it should be of what a netmaster knows without asking
// hosts and other netmasters.
func (f facts) judgeCluster() (out []api.Finding) {
	if !slices.ContainsFunc(f.masters, func(m api.Master) bool { return m.Role == roleLeader }) {
		out = append(out, condition.NoLeader.Finding("cluster", "no netmaster leads: nothing is cleaned up, and hosts that go are not reported"))
	}
	out = append(out, f.judgeStores()...)
	for _, text := range f.warnings {
		if !f.isReported(text) {
			out = append(out, condition.StoreMembers.Finding("cluster", text))
		}
	}
	out = append(out, f.judgeFabric()...)
	for _, h := range f.hosts {
		out = append(out, f.judgeHost(h)...)
	}
	if text := mixedFormats(f.hosts); text != "" {
		out = append(out, condition.FormatsDiffer.Finding("cluster", text))
	}
	if text := tunnelPorts(f.hosts); text != "" {
		out = append(out, condition.TunnelPortsDiffer.Finding("cluster", text))
	}
	for _, p := range f.pools {
		if float64(p.Used) >= nearlyFull*float64(p.Size) && p.Size > 0 {
			out = append(out, condition.PoolFills.Finding(p.Name, fmt.Sprintf("%d of %d are taken", p.Used, p.Size)))
		}
	}
	return append(out, brokenFindings(f.broken)...)
}

// brokenFindings says which assertions do not hold.
func brokenFindings(all []analysis.Verdict) (out []api.Finding) {
	for _, b := range all {
		text := b.String()
		if b.Assertion.Overridden != "" {
			text += "; it was overridden: " + b.Assertion.Overridden
		}
		out = append(out, condition.AssertionBroken.Finding("assertion "+b.Assertion.Key.String(), text))
	}
	return out
}

// isReported reports whether a finding about a netmaster or a host says what a warning of the
// store's members says.
func (f facts) isReported(warning string) bool {
	for _, m := range f.machines {
		if slices.ContainsFunc(m.Certificates, func(c api.Certificate) bool {
			return c.Subject != "" && strings.Contains(warning, c.Use+" ("+c.Subject+") ")
		}) {
			return true
		}
	}
	return slices.ContainsFunc(f.health.Conditions, func(c api.Condition) bool { return !c.OK && strings.HasSuffix(warning, ": "+c.Message) }) ||
		slices.ContainsFunc(f.hosts, func(h api.Host) bool {
			return h.State == api.HostAlive && strings.HasPrefix(warning, "the certificate of host "+h.Name+" ends ") && hasCondition(h.Conditions, condition.HostCertificates)
		})
}

func hasCondition(all []api.Condition, c *condition.Condition) bool {
	return slices.ContainsFunc(all, func(x api.Condition) bool { return x.Name == c.Name() })
}

func (f facts) judgeStores() (out []api.Finding) {
	for _, x := range f.stores {
		where := "store " + x.Address
		switch {
		case x.Error != "":
			out = append(out, condition.StoreServer.Finding(where, "it does not answer: "+x.Error))
		case len(x.Alarms) > 0:
			alarm := condition.StoreAlarm.Finding(where, "it has raised an alarm: "+strings.Join(x.Alarms, ", "))
			alarm.Remedy = model.AlarmRemedy(x.Alarms...)
			out = append(out, alarm)
		case x.Quota > 0 && float64(x.Size) > nearlyFull*float64(x.Quota):
			out = append(out, condition.StoreFills.Finding(where, fmt.Sprintf("it has taken %d of %d MiB: when they are used up nothing can be changed", x.Size>>20, x.Quota>>20)))
		}
	}
	return out
}

func (f facts) judgeHost(h api.Host) (out []api.Finding) {
	add := func(c *condition.Condition, format string, args ...any) {
		out = append(out, c.Finding("host "+h.Name, fmt.Sprintf(format, args...)))
	}
	if h.State == api.HostAway {
		last := "it has never reported its status"
		if h.Age >= 0 {
			last = "its last word was " + ageText(h.Age) + " ago"
		}
		add(condition.HostAway, "it is away: %s, and it has %s%s", last, condition.Count(h.Endpoints, "endpoint"), graceText(h))
		out[0].Remedy = awayRemedy(h)
		return out
	}
	ahead, known := f.clockOffset(h.Name)
	age := time.Duration(h.Age) * time.Second
	if said, err := time.Parse(time.RFC3339, h.LastWord); known && err == nil {
		age = f.now.Sub(said) + ahead // by the host's own clock, which h.Age is not
	} else if heard, seen := f.heard[h.Name]; seen && err == nil {
		if age = f.now.Sub(heard.At); !heard.Listed {
			ahead, known = said.Sub(heard.At), true
		}
	}
	switch said, err := time.Parse(time.RFC3339, h.LastWord); {
	case err != nil:
		add(condition.HostUnreported, "it is alive and has not reported its status yet")
	case age > statusTimeout:
		add(condition.HostNotReporting, "it is alive, but its last word was %s ago", ageText(int64(age/time.Second)))
	case !known && said.Sub(f.now) > clockSkew:
		add(condition.ClockOff, "its clock is %s ahead", said.Sub(f.now).Round(time.Second))
	}
	out = append(out, judgeClock(api.CheckHosts, "host "+h.Name, ahead)...)
	if h.Draining {
		add(condition.HostDrains, "it drains: services send its providers no new connections")
	}
	out = append(out, f.judgeInspection(h, &h.Conditions)...)
	for _, c := range h.Conditions {
		out = append(out, condition.HostFinding(h.Name, c))
	}
	// The status is some seconds old: a container that has just ended is still
	// counted there. Of one that runs without an endpoint the host says so itself.
	if h.Ready && h.Attachments > 0 && h.Endpoints < h.Attachments {
		add(condition.HostEndpoints, "it had %s attached at its last word, and the cluster has %s there", condition.Count(h.Attachments, "container"), condition.Count(h.Endpoints, "endpoint"))
	}
	for _, name := range sortedKeys(h.Tables) {
		t := h.Tables[name]
		if t.Capacity > 0 && float64(t.Entries) >= nearlyFull*float64(t.Capacity) {
			add(condition.TableFills, "table %s has %d of %d entries", name, t.Entries, t.Capacity)
		}
	}
	return out
}

// judgeInspection judges what a host has told of itself, in place of what it told last of its
// health.
func (f facts) judgeInspection(h api.Host, conditions *[]api.Condition) []api.Finding {
	if !f.asksHosts {
		return nil
	}
	where := "host " + h.Name
	i, answered := f.inspections.of[h.Name]
	switch {
	case f.inspections.older[h.Name]:
		return []api.Finding{condition.HostOld.Finding(where, "its netplugin is older than this netmaster, and does not look at its data plane, certificates and disks for the doctor")}
	case !answered:
		return []api.Finding{condition.HostNoHeartbeat.Finding(where, fmt.Sprintf("it is alive, and has not reported within %s", inspectionAnswer))}
	}
	*conditions = nil
	out := f.judgeKey(h.Name)
	for _, x := range i.Findings {
		switch x.Name {
		case condition.HostCertificates.Name(): // each has a finding of its own
			continue
		case condition.HostDisk.Name():
			i.Disks = slices.DeleteFunc(i.Disks, func(d api.Disk) bool { return d.Use == "state" && d.Free < noSpace })
		}
		x.Where = where // a host tells of itself alone
		out = append(out, x)
	}
	return append(out, f.judgeMachine(where, i.Machine)...)
}

// Of a disk this much is too little, where it is also less than a tenth.
const (
	lowSpace = 1 << 30
	noSpace  = 32 << 20
)

// judgeMachine judges certificates and disks.
func (f facts) judgeMachine(where string, m api.Machine) []api.Finding {
	out := f.judgeCertificates(where, m.Certificates)
	for _, d := range m.Disks {
		switch {
		case d.Error != "":
			out = append(out, condition.DiskUnread.Finding(where, fmt.Sprintf("the disk of %s (%s) cannot be looked at: %s", d.Path, d.Use, d.Error)))
		case d.Free < noSpace && d.Free < d.Size/10:
			out = append(out, condition.DiskFull.Finding(where, fmt.Sprintf("the disk of %s (%s) is full: %d of %d MiB are free", d.Path, d.Use, d.Free>>20, d.Size>>20)))
		case d.Free < lowSpace && d.Free < d.Size/10:
			out = append(out, condition.DiskFills.Finding(where, fmt.Sprintf("the disk of %s (%s) fills: %d of %d MiB are free", d.Path, d.Use, d.Free>>20, d.Size>>20)))
		}
	}
	return out
}

func (f facts) judgeVersions() (out []api.Finding) {
	add := func(where, text string) { out = append(out, condition.VersionsDiffer.Finding(where, text)) }
	servers, masters, agents := map[string][]string{}, map[string][]string{}, map[string][]string{}
	for _, x := range f.stores {
		if x.Version != "" {
			servers[x.Version] = append(servers[x.Version], x.Address)
		}
	}
	for _, m := range f.masters {
		if m.Version != "" {
			masters[m.Version] = append(masters[m.Version], m.Address)
		}
	}
	for _, h := range f.hosts {
		if h.Version != "" && h.State != api.HostAway {
			agents[h.Version] = append(agents[h.Version], h.Name)
		}
	}
	if len(servers) > 1 {
		add("store", "its servers are of different versions: "+groupText(servers))
	}
	if len(masters) > 1 {
		add("cluster", "netmasters are of different versions: "+groupText(masters))
	}
	if len(agents) > 1 {
		add("cluster", "netplugins are of different versions: "+groupText(agents))
	}
	if len(masters) == 1 && len(agents) == 1 {
		for m := range masters {
			if agents[m] == nil {
				add("cluster", fmt.Sprintf("netmaster is of version %s, and netplugin of %s", m, strings.Join(sortedKeys(agents), ", ")))
			}
		}
	}
	return out
}

// groupText tells who is of which version, the first few of each.
func groupText(by map[string][]string) string {
	const few = 3
	var parts []string
	for _, version := range sortedKeys(by) {
		names := by[version]
		slices.Sort(names)
		text := strings.Join(names[:min(few, len(names))], ", ")
		if more := len(names) - few; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, version+" ("+text+")")
	}
	return strings.Join(parts, "; ")
}
