package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// objectHandlers answers for the kinds of objects, lists to be applied and unconfirmed changes.
type objectHandlers struct {
	*serverContext
	router    *router
	manifests Manifests // nil = netmaster follows no Kubernetes
	streams   *streams
}

// desiredWrite is an object that a request asks for.
type desiredWrite struct {
	change   control.Change
	object   any // of package model
	key      string
	warnings []string // sentences: which of its fields have no effect
}

// clearedFields reports whether a request names a field and leaves it empty.
type clearedFields func(field string) bool

// warnings says which parts of an object have no effect.
func warnings(m any) []string {
	var out []string
	for _, n := range model.WithoutEffect(m) {
		out = append(out, n.Text)
	}
	switch m := m.(type) {
	case model.Endpoint:
		out = append(out, labelWarnings(m.Labels)...)
	case model.NetProfile:
		out = append(out, burstWarnings(m)...)
	case model.Rule:
		if p, err := netip.ParsePrefix(m.RawAddr); err == nil && p != m.Addr {
			out = append(out, fmt.Sprintf("the rule's address %s means %s: address bits beyond the length do not count", m.RawAddr, m.Addr))
		}
	}
	return out
}

// clusterWarnings names parts of an object that have no effect in the cluster as it is now.
func clusterWarnings(c *control.Controller, m any) []string {
	v := c.Current()
	switch m := m.(type) {
	case model.Assertion:
		return assertionWarnings(c, m)
	case model.NetworkPolicy:
		return selectorWarnings(v, m)
	case model.Service:
		return providerWarnings(v, m)
	}
	return fabricWarnings(v, m)
}

// providerWarnings says of a service that no endpoint provides it, whose selectors may be
// misspelt. Where its network has no endpoints there is nothing to compare with.
func providerWarnings(v *control.View, s model.Service) []string {
	if len(s.Selectors) == 0 || len(v.Services.Providers(s)) > 0 || v.Endpoints.EndpointsOf(model.Owned{Kind: "network", Key: s.Network.String()}) == 0 {
		return nil
	}
	return []string{"no endpoint of network " + s.Network.String() + " has all of its labels now, so that connections to it fail: check the spelling, unless such endpoints are still to come"}
}

// selectorWarnings names the selectors of a policy by labels that no endpoint has, which
// may be misspelt. Where a tenant has no endpoints there is nothing to compare with.
func selectorWarnings(v *control.View, p model.NetworkPolicy) (out []string) {
	hint := func(what string, s model.Selector) {
		if len(out) < maxWarned && v.Endpoints.SelectsNothing(s) {
			out = append(out, what+" no endpoint now (tenant "+s.String()+"): check the spelling, unless such endpoints are still to come")
		}
	}
	hint("it applies to", p.Policy.Applies)
	for _, r := range p.Rules {
		for _, peer := range r.Peers {
			if peer.Selector != nil {
				hint("rule "+string(r.Key.Rule)+" matches", *peer.Selector)
			}
		}
	}
	return out
}

// fabricWarnings says of objects for an ACI fabric that the cluster has none.
func fabricWarnings(v *control.View, m any) []string {
	switch m.(type) {
	case model.ExtContracts, model.AppProfile, model.AciGw:
	default:
		return nil
	}
	if g, ok := v.Settings.Global(); !ok || g.Infra == model.InfraACI {
		return nil
	}
	return []string{"no effect while the cluster's infrastructure type is not aci ('netctl global set --fabric-mode aci')"}
}

// labelWarnings names the labels that no policy can select by, whatever the
// cluster's filter is.
func labelWarnings(labels map[string]string) []string {
	var names []string
	for _, k := range sortedKeys(labels) {
		if !model.SelectableLabel(k, labels[k]) {
			names = append(names, strconv.Quote(clip([]byte(k))))
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if n := len(names) - maxWarned; n > 0 {
		names, more = names[:maxWarned], fmt.Sprintf(" and %d more", n)
	}
	return []string{"labels " + strings.Join(names, ", ") + more + ": kept and shown, but no policy selects by them, since name or value have not the syntax of Kubernetes' labels; for NotIn and DoesNotExist the endpoint does not have them"}
}

// maxWarned is how many labels one warning names.
const maxWarned = 8

// warn says in an answer which parts of a request have no effect.
func warn(w http.ResponseWriter, texts []string) {
	for _, text := range texts {
		w.Header().Add("Warning", `299 - `+strconv.Quote(text)) // RFC 9111 section 5.5, whose form outlives its registration
	}
}

// write creates or changes an object and answers with it as it was committed.
func (s *objectHandlers) write(k *kind, w http.ResponseWriter, r *request) (any, error) {
	var body json.RawMessage
	if _, err := decodeUpTo(w, r, &body, k.body); err != nil {
		return nil, err
	}
	if err := k.names.unambiguous(body); err != nil { // before links go: that forgets what is there twice
		return nil, err
	}
	want, err := k.read(s.control, withoutLinks(body))
	if err != nil {
		return nil, err
	}
	if err := checkKey(r.PathValue("key"), want.key); err != nil {
		return nil, err
	}
	done, err := s.put(r, k.name, want.key, want.change)
	if err != nil {
		return nil, err
	}
	warn(w, append(want.warnings, clusterWarnings(s.control, want.object)...))
	// The object is what was committed, whatever somebody has done to it since;
	// only what others link to it comes from the view.
	s.tagCommitted(w, r, k.name, want.key, done)
	return k.view(s.control.Current(), done.Object), nil
}

// put makes a change of one object on the request's condition.
func (s *objectHandlers) put(r *request, kind, key string, ch control.Change) (control.Commit, error) {
	only, err := s.ifMatch(r, kind, key)
	if err != nil {
		return control.Commit{}, err
	}
	done, err := s.control.Put(r.Context(), r.actor, ch.OnlyAt(only))
	r.committed(done.Revision)
	return done, err
}

// delete deletes one object on the request's condition.
func (s *objectHandlers) delete(r *request, kind, key string, gone control.Deletion) error {
	only, err := s.ifMatch(r, kind, key)
	if err != nil {
		return err
	}
	rev, err := s.control.Delete(r.Context(), r.actor, gone.OnlyAt(only))
	r.committed(rev)
	return err
}

// serverFields are the server's: whatever a client sends in them is ignored.
var serverFields = []string{"link-sets", "links"}

// withoutLinks takes the server's fields out of an object, of whatever type they are.
func withoutLinks(object []byte) []byte {
	var fields map[string]json.RawMessage
	if !bytes.Contains(bytes.ToLower(object), []byte(`"link`)) || json.Unmarshal(object, &fields) != nil {
		return object
	}
	for name := range fields {
		if slices.ContainsFunc(serverFields, func(f string) bool { return strings.EqualFold(f, name) }) {
			delete(fields, name)
		}
	}
	if out, err := json.Marshal(fields); err == nil {
		return out
	}
	return object
}

// revisionHeader carries the store revision of a write's commit.
const revisionHeader = "X-Contiv-Revision"
