package aci

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Timeout is how long an APIC and a gateway may take for an answer, by default.
const Timeout = 30 * time.Second

// maxRounds is how often a difference is worked out before what the APIC does with it
// is taken for a fault.
const maxRounds = 3

// APICConfig says which APIC, and as who.
type APICConfig struct {
	URLs      []string          // of the controllers of one fabric, such as https://apic1; each is tried when another does not answer
	User      string            // such as apic#LOCAL\contiv for a login domain
	Password  string            //
	Cluster   string            // marks what is ours: two clusters of one fabric differ in it; letters, digits and hyphens
	Transport http.RoundTripper // with the TLS that the APIC is checked by; nil = http.DefaultTransport
	Timeout   time.Duration     // of a request; 0 = Timeout
	Now       func() time.Time  // nil = time.Now

	now func() time.Time
}

// APIC keeps a fabric by the APIC's REST interface. It is for one goroutine.
type APIC struct {
	session *session
	mark    string
}

// NewAPIC returns an APIC; nothing is asked yet. Errors are of kind
// model.ErrInvalid.
func NewAPIC(cfg APICConfig) (*APIC, error) {
	if len(cfg.URLs) == 0 {
		return nil, model.InvalidField("apic", "", "must name at least one URL")
	}
	for _, u := range cfg.URLs {
		if p, err := url.Parse(u); err != nil || p.Scheme != "https" && p.Scheme != "http" || p.Host == "" || p.User != nil {
			return nil, model.InvalidField("apic", u, "must be a URL such as https://apic1, without user and password")
		}
	}
	if cfg.User == "" || cfg.Password == "" {
		return nil, model.InvalidField("apic", cfg.User, "needs a user and a password")
	}
	if cfg.Cluster == "" || len(cfg.Cluster) > maxNaming || strings.Trim(cfg.Cluster, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
		return nil, model.InvalidField("cluster", cfg.Cluster, "must be 1 to 64 letters, digits and hyphens")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = Timeout
	}
	if cfg.now = cfg.Now; cfg.now == nil {
		cfg.now = time.Now
	}
	return &APIC{newSession(cfg), "orchestrator:contiv-" + cfg.Cluster}, nil
}

// Apply makes the fabric what f says. If the session ends meanwhile, it starts again with
// reading. Errors are of kind model.ErrInvalid when f or a part of it is refused, else of
// kind model.ErrUnavailable: then it is unknown what was done, and the next Apply finds
// out.
func (a *APIC) Apply(ctx context.Context, f Fabric) (Report, error) {
	x, err := f.check()
	if err != nil {
		return Report{}, err
	}
	want := x.tree()
	var report Report
	for try := 0; ; try++ {
		report.Problems = slices.Clone(x.problems)
		err = a.converge(ctx, want, x.outer, &report)
		if try > 0 || !errors.Is(err, errSessionEnded) {
			break
		}
	}
	if errors.Is(err, errSessionEnded) {
		err = model.Errorf(model.ErrUnavailable, "the APIC ends each session at once: %w", err)
	}
	report.Problems = sortProblems(report.Problems)
	return report, err
}

// Close logs out.
func (a *APIC) Close(ctx context.Context) { a.session.end(ctx) }

// converge works the difference out and writes it, until there is none.
func (a *APIC) converge(ctx context.Context, want tree, outer []externalReference, report *Report) error {
	for range maxRounds {
		have, err := a.read(ctx, want)
		if err != nil {
			return err
		}
		d := diff(want, have, outer)
		kept, err := a.keepPopulatedTenants(ctx, d)
		if err != nil {
			return err
		}
		if d.empty() {
			report.Problems = append(append(report.Problems, d.problems...), kept...)
			return nil
		}
		if err := a.write(ctx, d, report); err != nil {
			report.Problems = append(append(report.Problems, d.problems...), kept...)
			return err
		}
	}
	return model.Errorf(model.ErrUnavailable, "the APIC, or another client, changes the objects that were written")
}

// roots are the classes by which tenants with something of ours are found: all
// else of ours is below one of them.
var roots = []string{"fvTenant", "fvCtx", "fvBD", "vzFilter", "vzBrCP", "fvAp", "fvAEPg"}

// read returns all that tenants have which are wanted, or have something of ours.
func (a *APIC) read(ctx context.Context, want tree) (tree, error) {
	tenants := map[string]bool{}
	for dn, o := range want {
		if o.class == "fvTenant" {
			tenants[dn] = true
		}
	}
	for _, class := range roots {
		q := url.Values{"query-target-filter": {"eq(" + class + `.annotation,"` + a.mark + `")`}}
		list, err := a.session.request(ctx, http.MethodGet, "/api/class/"+class+".json?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			rest, ok := strings.CutPrefix(o.Attributes["dn"], "uni/")
			if o.class != class || !ok || o.Attributes["annotation"] != a.mark {
				return nil, malformedResponse("an object that was not asked for")
			}
			tn, _, _ := strings.Cut(rest, "/")
			tenants["uni/"+tn] = true
		}
	}
	have := tree{}
	for _, dn := range slices.Sorted(maps.Keys(tenants)) {
		q := url.Values{"query-target": {"subtree"}, "target-subtree-class": {subtreeClasses()}}
		list, err := a.session.request(ctx, http.MethodGet, moPath(dn)+"?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			at := o.Attributes["dn"]
			if at != dn && !strings.HasPrefix(at, dn+"/") {
				return nil, malformedResponse("an object outside of what was asked for")
			}
			have[at] = object{o.class, o.Attributes, o.Attributes["annotation"] == a.mark, o.Attributes["state"]}
		}
	}
	return have, nil
}

// impliedInTenant are classes of objects that the APIC makes in each tenant.
var impliedInTenant = map[string]bool{"fvRsTenantMonPol": true, "vnsSvcCont": true}

// keepPopulatedTenants takes the removal of tenants out of d that have children of classes that
// were not read, and tells which.
func (a *APIC) keepPopulatedTenants(ctx context.Context, d *difference) (kept []Problem, err error) {
	var removes []op
	for _, o := range d.removes {
		if o.class != "fvTenant" {
			removes = append(removes, o)
			continue
		}
		list, err := a.session.request(ctx, http.MethodGet, moPath(o.dn)+"?query-target=children", nil)
		if err != nil {
			return nil, err
		}
		other := ""
		for _, c := range list {
			if !impliedInTenant[c.class] && c.Attributes["annotation"] != a.mark {
				other = c.Attributes["dn"]
			}
		}
		if other != "" {
			kept = append(kept, Problem{o.dn, "is not wanted any more, and stays because " + other + " below it is not ours"})
			removes = append(removes, a.clearTenant(o.dn, list)...)
			continue
		}
		removes = append(removes, o)
	}
	d.removes = removes
	return kept, nil
}

// clearTenant removes what is ours in a tenant that stays.
func (a *APIC) clearTenant(dn string, children []named) (out []op) {
	for _, c := range children {
		if _, ok := classes[c.class]; ok && c.Attributes["annotation"] == a.mark && parent(c.Attributes["dn"]) == dn {
			out = append(out, op{dn: c.Attributes["dn"], class: c.class, status: "deleted"})
		}
	}
	slices.SortStableFunc(out, func(x, y op) int { return classes[y.class].rank - classes[x.class].rank })
	return out
}

// write posts a difference: each object with its new children in one request, which the
// APIC does as a whole or not at all. Refused objects are reported and the rest goes on:
// deletions must not wait for additions that fail.
func (a *APIC) write(ctx context.Context, d *difference, report *Report) error {
	refused := 0
	var first error
	for _, p := range append(groupPosts(d.adds), groupPosts(d.removes)...) {
		_, err := a.session.request(ctx, http.MethodPost, moPath(p.dn), a.body(p))
		switch {
		case err == nil:
			report.Writes++
		case errors.Is(err, model.ErrInvalid):
			report.Problems = append(report.Problems, Problem{p.dn, err.Error()})
			if refused++; first == nil {
				first = err
			}
		default:
			return err
		}
	}
	if first != nil {
		return model.Errorf(model.ErrInvalid, "%d of the objects are refused, the first: %w", refused, first)
	}
	return nil
}

// post is an op with those below it.
type post struct {
	op
	below []*post
}

// groupPosts puts ops, parents first, into requests.
func groupPosts(ops []op) (out []*post) {
	at := map[string]*post{}
	for _, o := range ops {
		p := &post{op: o}
		at[o.dn] = p
		if up := at[parent(o.dn)]; up != nil && !classes[up.class].withoutChildren {
			up.below = append(up.below, p)
			continue
		}
		out = append(out, p)
	}
	return out
}

func (a *APIC) body(p *post) map[string]mo {
	o := mo{Attributes: map[string]string{"dn": p.dn}}
	maps.Copy(o.Attributes, p.props)
	if p.status == "created" {
		o.Attributes["annotation"] = a.mark
	}
	if p.status != "" && !classes[p.class].implicit {
		o.Attributes["status"] = p.status
	}
	for _, c := range p.below {
		o.Children = append(o.Children, a.body(c))
	}
	return map[string]mo{p.class: o}
}
