package acitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Profile is an app profile as the gateway was told it, in the shapes of 1.x.
type Profile struct {
	Version string `json:"aci-gw-api-version"`
	Config  struct {
		Key        string `json:"key"`
		Name       string `json:"name"`
		Domain     string `json:"physicalDomain"`
		Paths      string `json:"pathBindings"`
		Nodes      string `json:"nodeBindings"`
		Enforce    string `json:"enforcePolicies"`
		WithCommon string `json:"includeCommonTenant"`
	} `json:"gw-config"`
	Tenant    string     `json:"tenant"`
	Name      string     `json:"app-prof"`
	EPGs      []EPG      `json:"epgs"`
	Contracts []Contract `json:"contract-defs"`
}

// EPG is a group of a Profile.
type EPG struct {
	Name    string `json:"name"`
	Network string `json:"nw-name"`
	CIDR    string `json:"gw-cidr"`
	VLAN    string `json:"vlan-tag"`
	Links   []Link `json:"contract-links"`
}

// Link is what an EPG does with a contract.
type Link struct {
	Kind     string `json:"link-kind"`
	Contract string `json:"contract-name"`
	DN       string `json:"contract-dn"`
	Where    string `json:"contract-kind"`
}

// Contract is a definition of a Profile.
type Contract struct {
	Name    string   `json:"name"`
	Filters []Filter `json:"filter-info"`
}

// Filter is what a Contract lets through.
type Filter struct {
	Protocol string `json:"protocol"`
	Port     string `json:"servport"`
}

// Gateway is a simulated gateway of 1.x.
type Gateway struct {
	Merges bool                      // a profile that is created again keeps what it had
	Fault  func(*http.Request) Fault // nil = nothing goes wrong

	mu       sync.Mutex
	profiles map[string]Profile
	calls    []string // such as "createAppProf blue:shop"
}

// Profiles returns what it has, by "tenant:profile".
func (g *Gateway) Profiles() map[string]Profile {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.profiles)
}

// Calls returns the requests so far, and forgets them.
func (g *Gateway) Calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := g.calls
	g.calls = nil
	return out
}

// ServeHTTP answers as the gateway does.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := None
	if g.Fault != nil {
		fault = g.Fault(r)
	}
	switch fault {
	case Unavailable:
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	case Nonsense, Empty:
		fmt.Fprint(w, "{}")
		return
	case Slow:
		<-r.Context().Done()
		return
	case Cut:
		cut(w)
		return
	case None, CutAfter, Ended, Short, Ignored: // it has no sessions and no lists
	}
	info := ""
	if err := g.do(r); err != nil {
		info = err.Error()
	}
	if fault == CutAfter {
		cut(w)
		return
	}
	result := "success"
	if info != "" {
		result = "failed"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"result": result, "info": info}) // who asked has gone
}

func (g *Gateway) do(r *http.Request) error {
	if r.Method != http.MethodPost {
		return fmt.Errorf("method %s", r.Method)
	}
	var p Profile
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("there is data behind the body")
	}
	verb, key := strings.TrimPrefix(r.URL.Path, "/"), p.Tenant+":"+p.Name
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, verb+" "+key)
	if g.profiles == nil {
		g.profiles = map[string]Profile{}
	}
	switch verb {
	case "deleteAppProf":
		delete(g.profiles, key)
		return nil
	case "validateAppProf":
		return p.check()
	case "createAppProf":
		if err := p.check(); err != nil {
			return err
		}
		if old, ok := g.profiles[key]; ok && g.Merges {
			p = old.merged(p)
		}
		g.profiles[key] = p
		return nil
	}
	return fmt.Errorf("no such call: %s", verb)
}

// merged returns p with what n has besides.
func (p Profile) merged(n Profile) Profile {
	for _, e := range p.EPGs {
		i := slices.IndexFunc(n.EPGs, func(x EPG) bool { return x.Name == e.Name })
		if i < 0 {
			n.EPGs = append(n.EPGs, e)
			continue
		}
		n.EPGs[i].Links = union(n.EPGs[i].Links, e.Links)
	}
	for _, c := range p.Contracts {
		i := slices.IndexFunc(n.Contracts, func(x Contract) bool { return x.Name == c.Name })
		if i < 0 {
			n.Contracts = append(n.Contracts, c)
			continue
		}
		n.Contracts[i].Filters = union(n.Contracts[i].Filters, c.Filters)
	}
	return n
}

// union returns list with what more has besides.
func union[T comparable](list, more []T) []T {
	for _, x := range more {
		if !slices.Contains(list, x) {
			list = append(list, x)
		}
	}
	return list
}

var protocolRE = regexp.MustCompile(`^(tcp|udp|icmp|\d{1,3}|)$`)

// check refuses what makes no sense.
func (p Profile) check() error {
	switch {
	case p.Version != "v1.2":
		return fmt.Errorf("version %q", p.Version)
	case p.Tenant == "" || p.Name == "" || p.Config.Name != "aciGw":
		return errors.New("a name is missing")
	case p.EPGs == nil || p.Contracts == nil:
		return errors.New("a list is missing")
	}
	defined, names, vlans := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range p.Contracts {
		if defined[c.Name] || len(c.Filters) == 0 {
			return fmt.Errorf("contract %q is defined twice, or has no filter", c.Name)
		}
		defined[c.Name] = true
		for _, f := range c.Filters {
			n, err := strconv.Atoi(f.Port)
			if !protocolRE.MatchString(f.Protocol) || err != nil || n < 0 || n > 65535 {
				return fmt.Errorf("filter %v of contract %q", f, c.Name)
			}
		}
	}
	for _, e := range p.EPGs {
		n, err := strconv.Atoi(e.VLAN)
		if names[e.Name] || vlans[e.VLAN] || err != nil || n < 1 || n > 4094 || e.Network == "" {
			return fmt.Errorf("group %q: named twice, or its VLAN %q or network %q", e.Name, e.VLAN, e.Network)
		}
		names[e.Name], vlans[e.VLAN] = true, true
		for _, l := range e.Links {
			inside := l.Where == "INTERNAL" && defined[l.Contract] && l.DN == ""
			outside := l.Where == "EXTERNAL" && l.Contract == "" && l.DN != ""
			if l.Kind != "PROVIDE" && l.Kind != "CONSUME" || !inside && !outside {
				return fmt.Errorf("link %v of group %q", l, e.Name)
			}
		}
	}
	return nil
}
