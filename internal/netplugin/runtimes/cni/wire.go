package cni

import "net/url"

// Path is where netplugin's socket takes invocations of the plugin, by POST:
// the query says what the runtime gave in the environment, the body is the
// configuration as the runtime gave it.
const Path = "/v2/cni"

// How Path answers. Any other status means that the verb was not served, and
// the body, if it is an attach.Failure, why.
const (
	StatusDone    = 200 // the body is the result, empty for a verb that has none
	StatusRefused = 422 // the body is the specification's error object
)

// The verbs that reach netplugin.
const (
	Add    = "ADD"
	Del    = "DEL"
	Check  = "CHECK"
	GC     = "GC"
	Status = "STATUS"
)

// Invocation is one start of the plugin by a runtime. Which fields are set depends
// on the verb; the fields that the specification requires for it have been checked.
type Invocation struct {
	Verb      string
	Container string // CNI_CONTAINERID
	Netns     string // CNI_NETNS
	IfName    string // CNI_IFNAME
	Args      string // CNI_ARGS
	Conf      []byte // the configuration, as given
}

// target is where to post the invocation.
func (i Invocation) target() string {
	return Path + "?" + url.Values{
		"verb": {i.Verb}, "container": {i.Container}, "netns": {i.Netns}, "ifname": {i.IfName}, "args": {i.Args},
	}.Encode()
}

// Parameters are the query parameters of an invocation.
var Parameters = []string{"verb", "container", "netns", "ifname", "args"}

// ParseInvocation reads an Invocation at netplugin's end; fields that the query does
// not name are empty.
func ParseInvocation(query url.Values, conf []byte) Invocation {
	return Invocation{
		Verb: query.Get("verb"), Container: query.Get("container"), Netns: query.Get("netns"),
		IfName: query.Get("ifname"), Args: query.Get("args"), Conf: conf,
	}
}
