package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/bundle"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// facts are what the doctor judges, beside the store's contents.
type facts struct {
	now      time.Time
	masters  []api.Master
	machines map[string]api.Machine // of netmasters, by address; those that did not answer say so in unheard
	// mastersAhead is how far the clocks are of those that told it.
	mastersAhead map[string]time.Duration
	unheard      map[string]string
	keys         map[string]HostKey // of hosts' certificates
	told         *told              // what hosts have told of themselves for this
	asked        bool               // whether they were asked
	stores       []api.StoreServer
	hosts        []api.Host
	pools        []api.Pool
	fabric       control.AciFabric
}

// judge says what is not as it should be.
func (f facts) judge() (out []api.Finding) {
	out = append(out, f.judgeMasters()...)
	out = append(out, f.judgeStores()...)
	out = append(out, f.judgeFabric()...)
	for _, h := range f.hosts {
		out = append(out, f.judgeHost(h)...)
	}
	for _, m := range sortedKeys(f.machines) {
		out = append(out, f.judgeMachine("netmaster "+m, f.machines[m])...)
		out = append(out, judgeClock(api.CheckNetmasters, "netmaster "+m, f.mastersAhead[m])...)
	}
	for _, m := range sortedKeys(f.unheard) {
		out = append(out, api.Finding{
			Check: api.CheckNetmasters, Where: "netmaster " + m, Severity: api.SeverityWarning, Text: "it does not tell of itself: " + f.unheard[m],
			Remedy: "if it has ended, its registration ends within 10 s; else look into its log, or finish its upgrade",
		})
	}
	out = append(out, f.judgeVersions()...)
	for _, p := range f.pools {
		if float64(p.Used) >= nearlyFull*float64(p.Size) && p.Size > 0 {
			out = append(out, api.Finding{
				Check: api.CheckCapacity, Where: p.Name, Severity: api.SeverityNotice, Text: fmt.Sprintf("%d of %d are taken", p.Used, p.Size),
				Remedy: "delete what is not needed, or make another network or wider ranges before all are taken",
			})
		}
	}
	return out
}

func (f facts) judgeMasters() (out []api.Finding) {
	leads := 0
	for _, m := range f.masters {
		if m.Role == roleLeader {
			leads++
		}
	}
	if leads == 0 {
		out = append(out, api.Finding{
			Check: api.CheckNetmasters, Where: "cluster", Severity: api.SeverityError, Text: "no netmaster leads: nothing is cleaned up, and nobody tells of hosts that go",
			Remedy: "wait 15 s after the end of a leader, then look into the logs of netmaster",
		})
	}
	return out
}

func (f facts) judgeStores() (out []api.Finding) {
	add := func(x api.StoreServer, severity, text, remedy string) {
		out = append(out, api.Finding{Check: api.CheckStore, Where: "store " + x.Address, Severity: severity, Text: text, Remedy: remedy})
	}
	versions := map[string][]string{}
	for _, x := range f.stores {
		if x.Version != "" {
			versions[x.Version] = append(versions[x.Version], x.Address)
		}
		switch {
		case x.Error != "":
			add(x, api.SeverityError, "it does not answer: "+x.Error, "start it, or take it out of the store's members and of netmaster's addresses")
		case len(x.Alarms) > 0:
			add(x, api.SeverityError, "it has raised an alarm: "+strings.Join(x.Alarms, ", "), model.AlarmRemedy(x.Alarms...))
		case x.Quota > 0 && float64(x.Size) > nearlyFull*float64(x.Quota):
			add(x, api.SeverityWarning, fmt.Sprintf("it has taken %d of %d MiB: when they are used up nothing can be changed", x.Size>>20, x.Quota>>20), "netmaster's own: free its space with 'netctl cluster relieve', or delete what is not needed; another etcd: compact and defragment it, or raise its quota")
		}
	}
	if len(versions) > 1 {
		out = append(out, api.Finding{
			Check: api.CheckVersions, Where: "store", Severity: api.SeverityWarning, Text: "its servers are of different versions: " + groupText(versions), Remedy: "finish the upgrade of the store",
		})
	}
	return out
}

func (f facts) judgeHost(h api.Host) (out []api.Finding) {
	add := func(check, severity, text, remedy string) {
		out = append(out, api.Finding{Check: check, Where: "host " + h.Name, Severity: severity, Text: text, Remedy: remedy})
	}
	if h.State == api.HostAway {
		last := "it has never told its status"
		if h.Age >= 0 {
			last = "its last word was " + ageText(h.Age) + " ago"
		}
		add(api.CheckHosts, api.SeverityError, fmt.Sprintf("it is away: %s, and %d endpoints are there%s", last, h.Endpoints, graceText(h)), awayRemedy(h))
		return out
	}
	ahead, known := f.ahead(h.Name)
	age := time.Duration(h.Age) * time.Second
	if said, err := time.Parse(time.RFC3339, h.LastWord); known && err == nil {
		age = f.now.Sub(said) + ahead // by the host's own clock, which h.Age is not
	}
	switch said, err := time.Parse(time.RFC3339, h.LastWord); {
	case err != nil:
		add(api.CheckHosts, api.SeverityNotice, "it is alive and has not told its status yet", "wait a minute; then look into the log of netplugin there")
	case age > silence:
		add(api.CheckHosts, api.SeverityError, fmt.Sprintf("it is alive, but its last word was %s ago", ageText(int64(age/time.Second))), "set its clock if that is behind; else look into the log of netplugin there: it cannot tell netmasters its status")
	case !known && said.Sub(f.now) > clockSkew:
		add(api.CheckHosts, api.SeverityNotice, fmt.Sprintf("its clock is %s ahead", said.Sub(f.now).Round(time.Second)), "have the hosts' clocks follow one time")
	}
	out = append(out, judgeClock(api.CheckHosts, "host "+h.Name, ahead)...)
	if h.Error != "" {
		add(api.CheckDataPlane, api.SeverityError, "the data plane does not follow: "+h.Error, "look into the log of netplugin there")
	}
	out = append(out, f.judgeTold(h, &h.Conditions)...)
	for _, c := range h.Conditions {
		severity := api.SeverityError
		if c.Notice && !c.Degraded {
			severity = api.SeverityNotice
		} else if h.Error != "" && c.Name == "data-plane" {
			continue
		}
		add(checkOf(c.Name), severity, c.Name+": "+c.Message, "as it says; 'netctl host inspect "+h.Name+"' tells all problems of the host")
	}
	for _, name := range sortedKeys(h.Tables) {
		t := h.Tables[name]
		if t.Capacity > 0 && float64(t.Entries) >= nearlyFull*float64(t.Capacity) {
			add(api.CheckCapacity, api.SeverityNotice, fmt.Sprintf("table %s has %d of %d entries", name, t.Entries, t.Capacity), "see docs/user/limits.md for what fills it")
		}
	}
	return out
}

// judgeTold judges what a host has told of itself, in place of what it told last of its
// health.
func (f facts) judgeTold(h api.Host, conditions *[]api.Condition) (out []api.Finding) {
	if !f.asked {
		return nil
	}
	where := "host " + h.Name
	i, answered := f.told.of[h.Name]
	switch {
	case f.told.older[h.Name]:
		return []api.Finding{{
			Check: api.CheckVersions, Where: where, Severity: api.SeverityNotice, Text: "its netplugin is older than this netmaster, and does not look at its data plane, certificates and disks for the doctor",
			Remedy: "finish the upgrade of netplugin there",
		}}
	case !answered:
		return []api.Finding{{
			Check: api.CheckHosts, Where: where, Severity: api.SeverityWarning, Text: fmt.Sprintf("it is alive, and has not told of itself within %s", inspectionAnswer),
			Remedy: "ask again; then look into the log of netplugin there: it is very busy, cannot reach this netmaster, or follows the store too late",
		}}
	}
	*conditions = nil
	for _, x := range i.Findings {
		x.Where = where
		if x.Remedy == "" { // a condition of its health
			x.Text, x.Check, x.Remedy = x.Check+": "+x.Text, checkOf(x.Check), "as it says; 'netctl host inspect "+h.Name+"' tells all problems of the host"
		}
		out = append(out, x)
	}
	return append(append(out, f.judgeKey(h.Name)...), f.judgeMachine(where, i.Machine)...)
}

// Of a disk this much is too little, where it is also less than a tenth.
const (
	littleRoom = 1 << 30
	noRoom     = 32 << 20
)

// judgeMachine judges certificates and disks.
func (f facts) judgeMachine(where string, m api.Machine) (out []api.Finding) {
	add := func(check, severity, text, remedy string) {
		out = append(out, api.Finding{Check: check, Where: where, Severity: severity, Text: text, Remedy: remedy})
	}
	for _, c := range m.Certificates {
		switch text, remedy, ended := bundle.Ending(c, f.now); {
		case ended:
			add(api.CheckCertificates, api.SeverityError, text, remedy)
		case text != "":
			add(api.CheckCertificates, api.SeverityWarning, text, remedy)
		}
	}
	for _, d := range m.Disks {
		switch {
		case d.Error != "":
			add(api.CheckDisks, api.SeverityWarning, fmt.Sprintf("the disk of %s (%s) cannot be looked at: %s", d.Path, d.Use, d.Error), "make the directory, and readable for the daemon")
		case d.Free < noRoom && d.Free < d.Size/10:
			add(api.CheckDisks, api.SeverityError, fmt.Sprintf("the disk of %s (%s) is full: %d of %d MiB are free", d.Path, d.Use, d.Free>>20, d.Size>>20), "make room")
		case d.Free < littleRoom && d.Free < d.Size/10:
			add(api.CheckDisks, api.SeverityWarning, fmt.Sprintf("the disk of %s (%s) fills: %d of %d MiB are free", d.Path, d.Use, d.Free>>20, d.Size>>20), "make room")
		}
	}
	return out
}

// checkOf is what a condition of a host is about.
func checkOf(condition string) string {
	switch condition {
	case "disk":
		return api.CheckDisks
	case "certificates":
		return api.CheckCertificates
	case "store", "host-name", "netmaster", "journal":
		return api.CheckHosts
	}
	return api.CheckDataPlane
}

func (f facts) judgeVersions() (out []api.Finding) {
	add := func(severity, text, remedy string) {
		out = append(out, api.Finding{Check: api.CheckVersions, Where: "cluster", Severity: severity, Text: text, Remedy: remedy})
	}
	masters, agents := map[string][]string{}, map[string][]string{}
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
	if len(masters) > 1 {
		add(api.SeverityWarning, "netmasters are of different versions: "+groupText(masters), "finish the upgrade: neighbouring versions run together only for its time")
	}
	if len(agents) > 1 {
		add(api.SeverityWarning, "netplugins are of different versions: "+groupText(agents), "finish the upgrade: neighbouring versions run together only for its time")
	}
	if len(masters) == 1 && len(agents) == 1 {
		for m := range masters {
			if agents[m] == nil {
				add(api.SeverityWarning, fmt.Sprintf("netmaster is of version %s, and netplugin of %s", m, strings.Join(sortedKeys(agents), ", ")), "finish the upgrade: netmasters first, then the hosts")
			}
		}
	}
	for _, text := range []string{formats(f.hosts), tunnelPorts(f.hosts)} {
		if text != "" {
			add(api.SeverityError, text, "as it says")
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
