package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// MaxApplyBody is the largest body of POST /api/v1/apply, in bytes: some
// fifty thousand objects.
const MaxApplyBody = 16 << 20

// applier is what applying knows of a kind.
type applier struct {
	kind string
	// change turns a body into a change, and returns the object's key.
	change func(body []byte) (ch control.Change, key string, err error)
	// render turns an object of package model into its wire object, without links.
	render func(m any) any
}

// applied builds an applier: decode, convert, and the change of a list.
func applied[A api.Object, M any](kind string, from func(A) (M, error), change func(M) control.Change, to func(M) A) applier {
	return applier{
		kind: kind,
		change: func(body []byte) (ch control.Change, key string, err error) {
			var o A
			if err := decodeStrict(body, &o); err != nil {
				return ch, "", err
			}
			m, err := from(o)
			if err != nil {
				return ch, "", err
			}
			return change(m), o.ObjectKey(), nil
		},
		render: func(m any) any {
			if m, ok := m.(M); ok {
				return to(m)
			}
			return nil
		},
	}
}

// endpointRequest is an endpoint of a list.
type endpointRequest struct{ api.CreateEndpointRequest }

// ObjectKey returns "tenant:network:endpoint".
func (r endpointRequest) ObjectKey() string {
	return r.TenantName + ":" + r.NetworkName + ":" + r.EndpointID
}

func endpointToRequest(e model.Endpoint) endpointRequest {
	mac := ""
	if !e.MAC.Derived() {
		mac = e.MAC.String()
	}
	return endpointRequest{api.CreateEndpointRequest{
		TenantName: string(e.Key.Network.Tenant), NetworkName: string(e.Key.Network.Name), ServiceName: string(e.Group),
		EndpointID: string(e.Key.ID), EPCommonName: e.Name,
		ConfigEP: api.ConfigEP{
			Container: e.Container, Host: string(e.Host), IPAddress: addrText(e.IPv4), IPv6Address: addrText(e.IPv6),
			MacAddress: mac, ServiceName: string(e.Group), Labels: e.Labels,
		},
	}}
}

// appliers returns the kinds that may be applied.
func appliers(c *control.Controller) map[string]applier {
	all := map[string]applier{}
	for _, a := range []applier{
		applied("global", globalFromAPI, c.ChangeGlobal, globalToAPI),
		applied("tenant", tenantFromAPI, c.ChangeTenant, func(t model.Tenant) api.Tenant {
			return api.Tenant{Key: string(t.Name), TenantName: string(t.Name), DefaultNetwork: string(t.DefaultNetwork)}
		}),
		applied("network", networkFromAPI, c.ChangeNetwork, networkToAPI),
		applied("endpointGroup", groupFromAPI, c.ChangeGroup, groupToAPI),
		applied("policy", policyFromAPI, c.ChangePolicy, policyToAPI),
		applied("rule", ruleFromAPI, c.ChangeRule, ruleToAPI),
		applied("netprofile", netProfileFromAPI, c.ChangeNetProfile, netProfileToAPI),
		applied("serviceLB", serviceFromAPI, c.ChangeService, serviceToAPI),
		applied("appProfile", appProfileFromAPI, c.ChangeAppProfile, appProfileToAPI),
		applied("Bgp", bgpFromAPI, c.ChangeBgp, bgpToAPI),
		applied("extContractsGroup", extContractsFromAPI, c.ChangeExtContracts, extContractsToAPI),
		applied("aciGw", aciGwFromAPI, c.ChangeAciGw, aciGwToAPI),
		applied("volume", volumeFromAPI, c.ChangeVolume, volumeToAPI),
		applied("volumeProfile", volumeProfileFromAPI, c.ChangeVolumeProfile, volumeProfileToAPI),
		applied("endpoint", func(r endpointRequest) (model.Endpoint, error) { return endpointFromAPI(r.CreateEndpointRequest) },
			c.ChangeEndpoint, endpointToRequest),
	} {
		all[a.kind] = a
	}
	return all
}

// decodeStrict reads an object of a list, in which unknown fields are refused:
// who writes a file wants to know of a misspelt one.
func decodeStrict(body []byte, out any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(out)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return model.Errorf(model.ErrInvalid, "field %s: there is no such field", field)
	}
	return jsonError(body, err)
}

// apply makes a list of objects be as given.
func (s *server) apply(w http.ResponseWriter, r *http.Request) (any, error) {
	begin := time.Now()
	var req api.ApplyRequest
	if err := decodeUpTo(w, r, &req, MaxApplyBody); err != nil {
		return nil, err
	}
	kinds := appliers(s.control)
	changes := make([]control.Change, len(req.Objects))
	results := make([]api.ApplyResult, len(req.Objects))
	for i, object := range req.Objects {
		a, body, err := kindOf(kinds, object)
		if err == nil {
			results[i].Kind = a.kind
			changes[i], results[i].Key, err = a.change(body)
		}
		if err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	// Half of the time is for what is under way when it is over.
	more := func() bool { return time.Since(begin) < s.timeout/2 && r.Context().Err() == nil }
	outcomes, done, err := s.control.Apply(r.Context(), changes, req.DryRun, more)
	if e, ok := errors.AsType[*control.ChangeError](err); ok {
		return nil, fmt.Errorf("objects[%d]: %w", e.Index, e.Err)
	}
	if err != nil {
		return nil, err
	}
	for i, o := range outcomes {
		res := &results[i]
		switch {
		case o.Unchanged():
			res.Action = api.ApplyUnchanged
		case o.Before == nil:
			res.Action = api.ApplyCreated
		default:
			res.Action = api.ApplyUpdated
		}
		if !req.DryRun {
			continue
		}
		render := kinds[res.Kind].render
		if res.After, err = json.Marshal(render(o.After)); err != nil {
			return nil, err
		}
		if o.Before != nil {
			if res.Before, err = json.Marshal(render(o.Before)); err != nil {
				return nil, err
			}
		}
	}
	return api.ApplyResponse{Results: results, Done: done}, nil
}

// kindOf finds an object's kind and returns its fields without it.
func kindOf(kinds map[string]applier, object []byte) (a applier, body []byte, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		return a, nil, model.Errorf(model.ErrInvalid, "must be a JSON object with a kind")
	}
	var kind string
	if err := json.Unmarshal(fields["kind"], &kind); err != nil {
		return a, nil, model.InvalidField("kind", string(fields["kind"]), "must be one of "+strings.Join(sortedKeys(kinds), ", "))
	}
	a, ok := kinds[kind]
	if !ok {
		return a, nil, model.InvalidField("kind", kind, "must be one of "+strings.Join(sortedKeys(kinds), ", "))
	}
	delete(fields, "kind")
	body, err = json.Marshal(fields)
	return a, body, err
}
