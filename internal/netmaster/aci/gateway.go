package aci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// GatewayURL is where the gateway of 1.x listened.
const GatewayURL = "http://localhost:5000/"

// gatewayVersion is the version of 1.x's protocol.
const gatewayVersion = "v1.2"

// GatewayConfig says where the gateway is, and what it does.
type GatewayConfig struct {
	URL       string            // "" = GatewayURL
	Transport http.RoundTripper // nil = http.DefaultTransport
	Timeout   time.Duration     // of a request; 0 = Timeout
	// Sent are the profiles that the gateway may have from an earlier process: it cannot be
	// asked. Keep is called with all that it may have, before a profile is first sent and
	// after one was deleted; nil = no call.
	Sent []model.AppProfileKey
	Keep func(ctx context.Context, told []model.AppProfileKey) error
	// Merges says that the gateway adds a profile to what it has: a profile that loses
	// something is then deleted first, as 1.x did for any change.
	Merges bool
}

// Gateway keeps a fabric through the gateway process of 1.x: it sends each app profile as a
// whole when it differs from the last one sent. It is for one goroutine.
type Gateway struct {
	cfg    GatewayConfig
	client *http.Client
	sent   map[model.AppProfileKey]*appProfile // what it confirmed; nil = it is not known what it has
}

// The messages of the protocol; names are those of 1.x.
type appProfile struct {
	Version   string        `json:"aci-gw-api-version"`
	Config    api.AciGw     `json:"gw-config"`
	Tenant    string        `json:"tenant"`
	Name      string        `json:"app-prof"`
	Groups    []epg         `json:"epgs"`
	Contracts []contractDef `json:"contract-defs"`
}

type epg struct {
	Name    string         `json:"name"`
	Network string         `json:"nw-name"`
	Gateway string         `json:"gw-cidr"`
	VLAN    string         `json:"vlan-tag"`
	Links   []contractLink `json:"contract-links"`
}

type contractLink struct {
	Link string `json:"link-kind"` // PROVIDE, CONSUME
	Name string `json:"contract-name"`
	DN   string `json:"contract-dn"`
	Kind string `json:"contract-kind"` // INTERNAL, EXTERNAL
}

type contractDef struct {
	Name    string       `json:"name"`
	Filters []filterInfo `json:"filter-info"`
}

type filterInfo struct {
	Protocol string `json:"protocol"`
	Port     string `json:"servport"` // "0" = any
}

// NewGateway returns a Gateway; nothing is asked yet. Errors are of kind
// model.ErrInvalid.
func NewGateway(cfg GatewayConfig) (*Gateway, error) {
	if cfg.URL == "" {
		cfg.URL = GatewayURL
	}
	if u, err := url.Parse(cfg.URL); err != nil || u.Host == "" {
		return nil, model.InvalidField("aci-gw", cfg.URL, "must be a URL such as "+GatewayURL)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = Timeout
	}
	g := &Gateway{cfg: cfg, client: &http.Client{Transport: cfg.Transport, Timeout: cfg.Timeout}, sent: map[model.AppProfileKey]*appProfile{}}
	for _, k := range cfg.Sent {
		g.sent[k] = nil
	}
	return g, nil
}

// Close does nothing: the protocol has no sessions.
func (g *Gateway) Close(context.Context) {}

// Apply sends the differences to the gateway. Errors are of kind model.ErrInvalid when f,
// or a profile by the gateway, is refused, else of kind model.ErrUnavailable: then the
// profile is sent again the next time.
func (g *Gateway) Apply(ctx context.Context, f Fabric) (Report, error) {
	x, err := f.check()
	if err != nil {
		return Report{}, err
	}
	var r Report
	var refused error
	want := x.profiles()
	r.Problems = sortProblems(slices.Clone(x.problems))
	step := func(k model.AppProfileKey, err error) error {
		if errors.Is(err, model.ErrInvalid) {
			refused = err
			r.Problems = sortProblems(append(r.Problems, Problem{"appProfile " + k.String(), err.Error()}))
			return nil
		}
		return err
	}
	for _, p := range x.Profiles {
		if err := step(p.Key, g.putProfile(ctx, p.Key, want[p.Key], &r)); err != nil {
			return r, err
		}
	}
	for _, k := range g.known() {
		if want[k] == nil {
			if err := step(k, g.deleteProfile(ctx, k, x.Settings, &r)); err != nil {
				return r, err
			}
		}
	}
	return r, refused
}

// known returns the profiles that the gateway may have, by name.
func (g *Gateway) known() []model.AppProfileKey {
	return slices.SortedFunc(maps.Keys(g.sent), func(a, b model.AppProfileKey) int { return strings.Compare(a.String(), b.String()) })
}

// putProfile creates a profile, or changes it to p.
func (g *Gateway) putProfile(ctx context.Context, k model.AppProfileKey, p *appProfile, r *Report) error {
	had, known := g.sent[k]
	if had.equal(p) {
		return nil
	}
	if err := g.post(ctx, "validateAppProf", p); err != nil { // nothing is changed yet
		return err
	}
	g.sent[k] = nil
	if !known {
		if err := g.saveSent(ctx); err != nil {
			return err
		}
	}
	if g.cfg.Merges && known && !p.contains(had) {
		if err := g.post(ctx, "deleteAppProf", p); err != nil {
			return err
		}
	}
	if err := g.post(ctx, "createAppProf", p); err != nil {
		return err
	}
	g.sent[k] = p
	r.Writes++
	return nil
}

// deleteProfile deletes a profile.
func (g *Gateway) deleteProfile(ctx context.Context, k model.AppProfileKey, s model.AciGw, r *Report) error {
	g.sent[k] = nil
	if err := g.post(ctx, "deleteAppProf", newAppProfile(k, s)); err != nil {
		return err
	}
	delete(g.sent, k)
	r.Writes++
	return g.saveSent(ctx)
}

func (g *Gateway) saveSent(ctx context.Context) error {
	if g.cfg.Keep == nil {
		return nil
	}
	return g.cfg.Keep(ctx, g.known())
}

func (p *appProfile) equal(o *appProfile) bool {
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(o)
	return p != nil && o != nil && errA == nil && errB == nil && bytes.Equal(a, b)
}

// contains reports whether p has all that had has, so that adding p to it makes p.
func (p *appProfile) contains(had *appProfile) bool {
	if had == nil || p.Config != had.Config {
		return false
	}
	for _, e := range had.Groups {
		i := slices.IndexFunc(p.Groups, func(n epg) bool {
			return n.Name == e.Name && n.Network == e.Network && n.Gateway == e.Gateway && n.VLAN == e.VLAN
		})
		if i < 0 || !all(e.Links, p.Groups[i].Links) {
			return false
		}
	}
	for _, c := range had.Contracts {
		i := slices.IndexFunc(p.Contracts, func(n contractDef) bool { return n.Name == c.Name })
		if i < 0 || !all(c.Filters, p.Contracts[i].Filters) {
			return false
		}
	}
	return true
}

func all[T comparable](these, in []T) bool {
	return !slices.ContainsFunc(these, func(t T) bool { return !slices.Contains(in, t) })
}

// post makes one request.
func (g *Gateway) post(ctx context.Context, verb string, p *appProfile) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(g.cfg.URL, "/")+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return model.Errorf(model.ErrInvalid, "the gateway's URL: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "the ACI gateway does not answer: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		Result string `json:"result"`
		Info   string `json:"info"`
	}
	switch err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); {
	case resp.StatusCode != http.StatusOK:
		return model.Errorf(model.ErrUnavailable, "the ACI gateway answers %s", clip(resp.Status, maxText))
	case err != nil || answer.Result == "":
		return model.Errorf(model.ErrUnavailable, "the ACI gateway's answer cannot be read")
	case answer.Result != "success":
		return model.Errorf(model.ErrInvalid, "the ACI gateway refuses %s: %s", verb, clip(answer.Info, maxText))
	}
	return nil
}

func newAppProfile(k model.AppProfileKey, s model.AciGw) *appProfile {
	yesNo := map[bool]string{true: "yes", false: "no"}
	return &appProfile{
		Version: gatewayVersion, Tenant: string(k.Tenant), Name: k.Name, Groups: []epg{}, Contracts: []contractDef{},
		Config: api.AciGw{
			Key: "aciGw", Name: "aciGw", PhysicalDomain: s.PhysicalDomain,
			EnforcePolicies: yesNo[s.EnforcePolicies], IncludeCommonTenant: yesNo[s.IncludeCommonTenant],
			NodeBindings: strings.Join(s.NodeBindings, ","), PathBindings: strings.Join(s.PathBindings, ","),
		},
	}
}

// profiles returns what the gateway should be told.
func (x *index) profiles() map[model.AppProfileKey]*appProfile {
	contracts := x.contracts()
	type gwName struct {
		tenant model.TenantName
		name   string
	}
	owner := map[gwName]contractKey{} // 1.x' names of two contracts may be one
	contracts = slices.DeleteFunc(contracts, func(c *contract) bool {
		n := gwName{c.key.policy.Tenant, gatewayName(c.key)}
		if first, taken := owner[n]; taken {
			x.problem("policy "+c.key.policy.String(), "its contract "+n.name+" has the name of one of policy "+string(first.policy.Name))
			return true
		}
		owner[n] = c.key
		return false
	})
	out := map[model.AppProfileKey]*appProfile{}
	for _, p := range x.Profiles {
		a := newAppProfile(p.Key, x.Settings)
		for _, g := range x.members(p) {
			a.Groups = append(a.Groups, x.epg(g, contracts))
		}
		for _, c := range contracts {
			if !x.usesContract(c, p.Key) {
				continue
			}
			d := contractDef{Name: gatewayName(c.key)}
			for _, e := range c.sorted() {
				d.Filters = append(d.Filters, filterInfo{e.protocol.String(), strconv.Itoa(int(e.port))})
			}
			a.Contracts = append(a.Contracts, d)
		}
		out[p.Key] = a
	}
	return out
}

// usesContract reports whether a group of the profile provides or consumes c.
func (x *index) usesContract(c *contract, p model.AppProfileKey) bool {
	for _, ends := range []map[model.GroupKey]bool{c.providers, c.consumers} {
		for g := range ends {
			if x.profile[g] == p {
				return true
			}
		}
	}
	return false
}

func (x *index) epg(g Group, contracts []*contract) epg {
	out := epg{Name: string(g.Key.Name), Network: string(g.Network), VLAN: strconv.Itoa(int(g.VLAN)), Links: []contractLink{}}
	if cidrs := gateways(x.networks[g.NetworkKey()]); len(cidrs) > 0 {
		out.Gateway = cidrs[0]
	}
	for _, c := range contracts {
		name := gatewayName(c.key)
		if c.providers[g.Key] {
			out.Links = append(out.Links, contractLink{"PROVIDE", name, "", "INTERNAL"})
		}
		if c.consumers[g.Key] {
			out.Links = append(out.Links, contractLink{"CONSUME", name, "", "INTERNAL"})
		}
	}
	for _, o := range x.externalContractsOf(g) {
		link := map[bool]string{true: "PROVIDE", false: "CONSUME"}[o.provided]
		out.Links = append(out.Links, contractLink{link, "", o.dn, "EXTERNAL"})
	}
	return out
}

// gatewayName is a contract's name in 1.x.
func gatewayName(k contractKey) string {
	return string(k.policy.Name) + string(k.kind) + string(k.peer)
}
