package compat

import (
	"maps"
	"net/http"
	"strings"
)

// exists holds the objects that exist on one side only, in the recording or on
// this server, since one of the two refused what the other did: the reason is
// in the table of differences once, at that exchange. What such an object takes
// part in later (answers about it, links to it, its place in lists) is no
// further difference.
type exists map[string]bool // by type and key, such as "network default:v1"

// retagged is a group whose cfgdTag one exchange changes. 1.x answered with the
// new tag and kept none.
const retagged = "default:web"

// types are the objects' types by collection.
var types = map[string]string{
	"globals": "global", "tenants": "tenant", "networks": "network", "endpointGroups": "endpointGroup", "policys": "policy",
	"rules": "rule", "netprofiles": "netprofile", "serviceLBs": "serviceLB", "appProfiles": "appProfile", "Bgps": "Bgp",
	"extContractsGroups": "extContractsGroup", "aciGws": "aciGw", "volumes": "volume", "volumeProfiles": "volumeProfile",
}

// object returns the object that a path is about, "" for none, and the type of
// its collection.
func object(path string) (object, kind string, inspect bool) {
	rest, ok := strings.CutPrefix(path, "/api/v1/")
	if !ok {
		return "", "", false
	}
	rest, inspect = strings.CutPrefix(rest, "inspect/")
	collection, key, _ := strings.Cut(rest, "/")
	if key = strings.TrimSuffix(key, "/"); key == "" {
		return "", types[collection], inspect
	}
	return types[collection] + " " + strings.ReplaceAll(key, "%20", " "), types[collection], inspect
}

// follow records on which sides an object exists after an exchange.
func (e exists) follow(x exchange, status int) {
	o, _, inspect := object(x.Path)
	if o == "" || inspect || x.Method == http.MethodGet || x.Method == http.MethodHead {
		return
	}
	there, here := recorded(x.Status) == "success", class(status) == "success"
	switch {
	case there && here:
		delete(e, o)
	case there != here && x.Method == http.MethodDelete:
		e[o] = !e[o] // it went on the one side where it was, or on one of two
	case there != here:
		e[o] = !e[o] || !strings.HasPrefix(x.Method, "P")
	}
	maps.DeleteFunc(e, func(_ string, differs bool) bool { return !differs })
}

// without returns an answer without what exists on one side only.
func (e exists) without(x exchange, v any) any {
	_, kind, _ := object(x.Path)
	if list, ok := v.([]any); ok && kind != "" {
		out := []any{}
		for _, m := range list {
			if o, ok := m.(map[string]any); ok {
				if key, _ := o["key"].(string); e[kind+" "+key] {
					continue
				}
			}
			out = append(out, e.strip(m))
		}
		return out
	}
	return e.strip(v)
}

// strip takes links to such objects out of an answer.
func (e exists) strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, m := range v {
			if k == "cfgdTag" && v["key"] == retagged && v["groupName"] != nil || k == "groupTag" {
				continue
			}
			if link, ok := m.(map[string]any); ok {
				t, _ := link["type"].(string)
				key, _ := link["key"].(string)
				if t != "" && e[t+" "+key] {
					continue
				}
				if m = e.strip(m); len(link) > 0 && len(m.(map[string]any)) == 0 {
					continue // all of a set's links are gone: so is the set
				}
			} else {
				m = e.strip(m)
			}
			out[k] = m
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, m := range v {
			out[i] = e.strip(m)
		}
		return out
	}
	return v
}
