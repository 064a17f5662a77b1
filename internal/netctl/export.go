package netctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

type exportOptions struct {
	common
	from  string
	inUse bool
	skip  bool // leave out what the server cannot tell of
}

func newExport(base common) *command {
	o := &exportOptions{common: base}
	o.tenant = ""
	c := &command{
		name:  "export",
		short: "Write all objects as YAML documents that apply takes",
		examples: []string{
			"netctl export > cluster.yaml",
			"netctl export --tenant blue > blue.yaml",
			"netctl export --from http://old-netmaster:9999 > cluster.yaml   # a netmaster of 1.x",
		},
	}
	c.flags.String(&o.tenant, "tenant, t", "TENANT", "only the tenant and its objects")
	c.flags.String(&o.from, "from", "URL", "of another netmaster, also of 1.x; implies --in-use")
	c.flags.Bool(&o.inUse, "in-use", "write the tags and addresses in use, including those that netmaster chose, and the endpoints")
	c.flags.Bool(&o.skip, "skip-broken", "omit, with a warning, objects that the netmaster cannot list, instead of failing")
	c.flags.Bool(&o.json, "json, j", "print a JSON array")
	c.flags.Bool(&o.quiet, "quiet, q", "print kinds and keys only")
	c.run = bindRun(o, runExport, nil)
	return c
}

func runExport(ctx context.Context, o *exportOptions) error {
	if o.from != "" {
		o.globals.netmaster, o.inUse = o.from, true
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	if o.tenant != "" {
		if _, err := client.Tenants().Get(ctx, o.tenant); err != nil {
			return err
		}
	}
	_, err = client.Globals().List(ctx)
	admin := !api.IsForbidden(err) // else of tenants; 1.x checks no permission
	docs := []exported{}           // not nil: JSON shows []
	for _, k := range objectKinds() {
		if o.tenant != "" && !k.perTenant && k.name != "tenant" {
			continue
		}
		list, err := k.list(ctx, client)
		if api.IsForbidden(err) && !k.perTenant { // a tenant-admin exports what is its own
			fmt.Fprintf(o.stderr, "warning: left out the kind %s: %s\n", k.name, message(err))
			continue
		}
		if err != nil && (k.name == "tenant" || !isMissing(err)) { // early 1.x lack some kinds
			return err
		}
		for _, object := range list {
			if o.tenant != "" && k.tenant(object) != o.tenant && (k.name != "tenant" || k.key(object) != o.tenant) {
				continue
			}
			if k.asDocument != nil {
				object = k.asDocument(object)
			}
			found := []exported{{k.name, k.key(object), object}}
			if o.inUse && k.pin != nil {
				if found, err = k.pin(ctx, o, client, found[0]); err != nil {
					return err
				}
			}
			docs = append(docs, found...)
		}
	}
	if !admin { // apply would refuse the whole list
		docs = slices.DeleteFunc(docs, func(d exported) bool { return d.kind == "tenant" || d.kind == endpointKind })
		fmt.Fprintln(o.stderr, "warning: left out the kinds tenant and endpoint: only a cluster-admin writes them")
		docs = slices.DeleteFunc(docs, func(d exported) bool {
			left := needsClusterAdmin(d.object)
			if left {
				fmt.Fprintf(o.stderr, "warning: left out %s %s: only a cluster-admin writes it\n", d.kind, d.key)
			}
			return left
		})
	}
	// Endpoints come last, after the networks and groups that they are in.
	slices.SortStableFunc(docs, func(a, b exported) int { return boolInt(a.kind == endpointKind) - boolInt(b.kind == endpointKind) })
	return o.write(docs)
}

// needsClusterAdmin reports whether netmaster refuses an object of a tenant to its
// administrators, even unchanged: they may only read it.
func needsClusterAdmin(object any) bool {
	switch o := object.(type) {
	case api.NetworkPolicy:
		return o.Tier == "admin"
	case api.Assertion:
		return o.ClusterWide
	}
	return false
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// exported is an object on its way into a document.
type exported struct {
	kind, key string
	object    any
}

func (o *exportOptions) write(docs []exported) error {
	switch {
	case o.json:
		var out []map[string]any
		for _, d := range docs {
			fields := map[string]any{"kind": d.kind}
			for _, f := range fieldsOf(d.object) {
				var v any
				if err := f.node.Decode(&v); err != nil {
					return err
				}
				fields[f.name] = v
			}
			out = append(out, fields)
		}
		return printJSON(o.out, append([]map[string]any{}, out...))
	case o.quiet:
		for _, d := range docs {
			if _, err := fmt.Fprintln(o.out, d.kind, d.key); err != nil {
				return err
			}
		}
		return nil
	}
	return writeDocuments(o.out, docs)
}

func writeDocuments(w io.Writer, docs []exported) error {
	for _, d := range docs {
		if err := writeDocument(w, d.kind, d.object); err != nil {
			return err
		}
	}
	return nil
}

// unreadable names an object that the server cannot tell of: in the error, or with
// --skip-broken in a warning on standard error.
func (o *exportOptions) unreadable(what string, err error) error {
	if err == nil || api.IsUnavailable(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if !o.skip {
		return fmt.Errorf("%s: %w; restarting a netmaster of 1.x may help, and --skip-broken omits what it cannot list", what, err)
	}
	_, err = fmt.Fprintf(o.stderr, "warning: %s: %v; what it cannot list is omitted\n", what, err)
	return err
}

// ambiguous warns of labels of 1.x that may be read wrongly.
func (o *exportOptions) ambiguous(network string, e api.EndpointOper) error {
	if e.LabelMap != nil {
		return nil
	}
	for key, value := range parseLabels(e.Labels) {
		if strings.Contains(value, " ") {
			_, err := fmt.Fprintf(o.stderr, "warning: endpoint %s of network %s: its labels are listed as %q, where a value with blanks looks like several labels; check %q\n",
				e.EndpointID, network, e.Labels, key)
			return err
		}
	}
	return nil
}

// labelsOf are an endpoint's labels; a netmaster of 1.x tells them as text only.
func labelsOf(e api.EndpointOper) map[string]string {
	if e.LabelMap != nil {
		return e.LabelMap
	}
	return parseLabels(e.Labels)
}

// endpointRequest asks for an endpoint as it is, at its addresses.
func endpointRequest(n api.Network, e api.EndpointOper) api.CreateEndpointRequest {
	r := api.CreateEndpointRequest{
		TenantName: n.TenantName, NetworkName: n.NetworkName, EndpointID: e.EndpointID, EPCommonName: e.ContainerName,
		ConfigEP: api.ConfigEP{Container: e.ContainerID, Host: e.HomingHost, MacAddress: e.ChosenMac, Labels: labelsOf(e), Rates: e.Rates},
	}
	if e.ServiceName != n.NetworkName { // 1.x names the network where there is no group
		r.ServiceName = e.ServiceName
	}
	if r.EndpointID == "" { // 1.x calls an endpoint by its container
		r.EndpointID = e.ContainerID
	}
	for i, p := range []*string{&r.ConfigEP.IPAddress, &r.ConfigEP.IPv6Address} {
		if i < len(e.IPAddress) {
			*p = e.IPAddress[i]
		}
	}
	return r
}

var labelStart = regexp.MustCompile(`(?:^| )([^\s:]+):`)

// parseLabels reads labels as the wire shows them, "map[app:web tier:front]". A
// value with blanks before something like "word:" cannot be told from two labels.
func parseLabels(s string) map[string]string {
	s, ok := strings.CutPrefix(s, "map[")
	s = strings.TrimSuffix(s, "]")
	if !ok || s == "" {
		return nil
	}
	labels := map[string]string{}
	starts := labelStart.FindAllStringSubmatchIndex(s, -1)
	for i, at := range starts {
		end := len(s)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		labels[s[at[2]:at[3]]] = s[at[1]:end]
	}
	return labels
}

// isMissing reports whether the server does not have the path at all.
func isMissing(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Status == http.StatusNotFound
}
