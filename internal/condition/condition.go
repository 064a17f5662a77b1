package condition

import (
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/api"
)

// Object is the kind of object that a condition is about.
type Object string

// The kinds of objects.
const (
	Host      Object = "host"      // reported by its netplugin
	Netmaster Object = "netmaster" // reported by itself
	Cluster   Object = "cluster"   // found by the netmaster that answers
)

// row is what the registry knows of a condition.
type row struct {
	name     string
	severity string // one of api's
	notReady bool   // /readyz of the daemon answers 503
	check    string // one of api's: what the doctor puts it under
	means    string // a sentence: when it is reported
	remedy   string // what to do, an imperative without a full stop
}

// Condition is something that can be wrong. Its name is stable, and unique among the
// conditions of its kind of object.
type Condition struct {
	object Object
	row
}

var all []*Condition

func register(object Object, r row) *Condition {
	c := &Condition{object, r}
	all = append(all, c)
	return c
}

// All returns all conditions: of hosts, netmasters and the cluster, the most telling first.
func All() []*Condition { return slices.Clone(all) }

// OfHost returns a host's condition by its name; nil = this version does not know it.
func OfHost(name string) *Condition {
	i := slices.IndexFunc(all, func(c *Condition) bool { return c.object == Host && c.name == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Name returns the condition's stable name.
func (c *Condition) Name() string { return c.name }

// Object returns the kind of object that the condition is about.
func (c *Condition) Object() Object { return c.object }

// Severity returns one of api's severities.
func (c *Condition) Severity() string { return c.severity }

// Ready reports whether a daemon with this condition is ready all the same.
func (c *Condition) Ready() bool { return !c.notReady }

// Means returns a sentence that says when the condition is reported.
func (c *Condition) Means() string { return c.means }

// Remedy returns what to do.
func (c *Condition) Remedy() string { return c.remedy }

// page is the generated page of all conditions.
const page = "docs/reference/conditions.md"

// Page returns where the condition is documented.
func (c *Condition) Page() string { return page + "#" + c.htmlID() }

func (c *Condition) htmlID() string { return string(c.object) + "-" + c.name }

// Count writes how many there are of what noun names: 1 endpoint, 2 endpoints.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Finding reports the condition of an object, such as "host h1", by a sentence that begins
// with "it", or stands for itself.
func (c *Condition) Finding(where, text string) api.Finding {
	return api.Finding{
		Name: c.name, Object: string(c.object), Check: c.check, Where: where, Severity: c.severity, Text: text, Remedy: c.remedy, Page: c.Page(),
	}
}

// Failed is the condition as a daemon reports it, with what is wrong.
func (c *Condition) Failed(err error) api.Condition {
	return api.Condition{Name: c.name, Severity: c.severity, Message: err.Error(), Remedy: c.remedy, Page: c.Page()}
}

// Add enters the condition to a daemon's health; it holds when err is nil.
func (c *Condition) Add(h *api.Health, err error) {
	if err == nil {
		h.Conditions = append(h.Conditions, api.Condition{Name: c.name, OK: true, Severity: c.severity})
		return
	}
	h.Ready = h.Ready && !c.notReady
	h.Conditions = append(h.Conditions, c.Failed(err))
}

// MasterFinding is a condition that a netmaster has reported of itself.
func MasterFinding(where string, told api.Condition) api.Finding {
	return api.Finding{
		Name: told.Name, Object: string(Netmaster), Check: api.CheckNetmasters, Where: where, Severity: told.Severity, Text: told.Name + ": " + told.Message, Remedy: told.Remedy, Page: told.Page,
	}
}

// HostFinding is a condition that a host has reported by name. Of one that only a newer
// netplugin knows, the severity is the host's word.
func HostFinding(host string, told api.Condition) api.Finding {
	c := OfHost(told.Name)
	if c == nil {
		c = HostUnknown
	}
	f := c.Finding("host "+host, told.Name+": "+told.Message)
	if c == HostUnknown {
		f.Name = told.Name
		if told.Severity != "" {
			f.Severity = told.Severity
		}
	}
	return f
}
