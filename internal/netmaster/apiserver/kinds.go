package apiserver

import (
	"cmp"
	"errors"
	"iter"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/fields"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// kindSpec says how objects of a kind are served and written: A is the object on
// the wire, K its key, M the value of package model. The file of each kind
// registers one; what is common to all is made of it.
type kindSpec[A api.Object, K any, M model.Validator] struct {
	collection string // in paths: "networks"; "" = none, and objects come in lists to be applied only
	name       string // of one, in links, lists to be applied and messages: "network"

	strict strictness // beyond unknown fields and such that are there twice; zero = nothing
	body   int64      // largest body, in bytes; 0 = MaxBody

	access kindAccess // of a kind with a collection

	key  func(string) (K, error)
	list func(*control.View, model.TenantName) []M // of one tenant, or of all ("")
	get  func(*control.View, K) (M, bool)
	// missing says more of an object that is not there than that; it, and what it returns, may be nil.
	missing func(*control.View, K) error

	parse  func(A) (M, error)       // the result need not be valid: that is checked afterwards
	render func(M) A                // without what others link to it
	linked func(*control.View, M) A // with that; nil = nothing does
	change func(*control.Controller, model.Valid[M], clearedFields) control.Change
	delete func(*control.Controller, K) control.Deletion

	// oper is a zero wire object of the operational state, and inspect makes one;
	// nil = the kind has none.
	oper    any
	inspect func(*serverContext, *control.View, M) any
	// unset is what inspect shows in place of an object that is not there; nil, or
	// false: it is not found.
	unset func(*control.View) (M, bool)
}

// kind is a rest without its types.
type kind struct {
	collection, name string
	fields           map[string]fields.Field
	body             int64
	names            strictness // of its fields' names alone; what must not be empty is judged by read
	object, oper     any        // zero wire objects, for the description of the API; oper nil = no operational state
	access           kindAccess
	// list and get return wire objects with links; list those within a scope.
	list func(v *control.View, scope control.Scope) iter.Seq[any]
	get  func(v *control.View, key string) (any, error)
	del  func(c *control.Controller, key string) (control.Deletion, error)
	// inspect returns the operational state; nil = the kind has none.
	inspect func(s *serverContext, v *control.View, key string) (any, error)
	// unset returns what inspect shows of an object that is not there; nil = it is not found.
	unset func(s *serverContext, v *control.View, key string) (config, oper any, ok bool)
	// read turns a body, which is a JSON object without the server's fields, into a wish.
	read func(c *control.Controller, body []byte) (desiredWrite, error)
	// render makes the wire object, without links, of an object of package model;
	// view makes it with links.
	render func(m any) any
	view   func(v *control.View, m any) any
}

var registry = map[string]*kind{} // by name

// register enters a kind.
func register[A api.Object, K any, M model.Validator](r kindSpec[A, K, M]) *kind {
	if r.linked == nil {
		r.linked = func(_ *control.View, m M) A { return r.render(m) }
	}
	k := &kind{
		collection: r.collection, name: r.name, fields: fields.Of(*new(A)), access: r.access, body: cmp.Or(r.body, MaxBody), names: strictness{labels: cmp.Or(r.strict.labels, strictEndpoint.labels)}, object: *new(A), oper: r.oper,
		list: r.all, get: r.one, del: r.del, read: r.read,
		render: func(m any) any { return r.render(m.(M)) },                     //nolint:forcetypeassert // what control holds of the kind
		view:   func(v *control.View, m any) any { return r.linked(v, m.(M)) }, //nolint:forcetypeassert // likewise
	}
	if r.inspect != nil {
		k.inspect = r.state
	}
	if r.unset != nil {
		k.unset = r.stateUnset
	}
	registry[r.name] = k
	return k
}

// collections are the kinds under /api/v1, in package model's order.
func collections() []*kind {
	var out []*kind
	for _, m := range model.Kinds() {
		if k := registry[m.Name]; k != nil && k.collection != "" {
			out = append(out, k)
		}
	}
	return out
}

// Kinds returns the names of the kinds that can be written, in order.
func Kinds() []string { return sortedKeys(registry) }

// notFound says that an object does not exist.
func notFound(noun, key string) error {
	return model.Errorf(model.ErrNotFound, "%s %q does not exist", noun, clip([]byte(key)))
}

// kindAccess is what each route of a kind requires.
type kindAccess struct{ list, get, inspect, write access.Capability }

var (
	// ofTenants is for kinds whose keys begin with a tenant, and which refer to objects of
	// that tenant only.
	ofTenants = kindAccess{
		list: access.View | access.WithinScope, get: access.View | access.OwnTenants, inspect: access.View | access.OwnTenants, write: access.OwnTenants,
	}
	// ofTenantsForDocker is for objects that each host shows to its Docker engine too.
	ofTenantsForDocker = kindAccess{
		list: ofTenants.list | access.AnyHost, get: ofTenants.get | access.AnyHost, inspect: ofTenants.inspect, write: ofTenants.write,
	}
	// ofCluster is for kinds of the cluster.
	ofCluster = kindAccess{list: access.View, get: access.View, inspect: access.View, write: access.AdminOnly}
)

// kindsOfTenants are the kinds that tenant admins write.
func kindsOfTenants() (names []string) {
	for _, name := range Kinds() {
		if registry[name].access.write&access.OwnTenants != 0 {
			names = append(names, name)
		}
	}
	return names
}

// listWithin lists what the tenants of a scope have.
func listWithin[M any](v *control.View, scope control.Scope, list func(*control.View, model.TenantName) []M) (all []M) {
	if !scope.Limited() {
		return list(v, "")
	}
	for _, t := range scope.Tenants() {
		all = append(all, list(v, t)...)
	}
	return all
}

// all makes the list's objects one by one while the answer is sent.
func (r kindSpec[A, K, M]) all(v *control.View, scope control.Scope) iter.Seq[any] {
	list := listWithin(v, scope, r.list)
	return func(yield func(any) bool) {
		for _, m := range list {
			if !yield(r.linked(v, m)) {
				return
			}
		}
	}
}

// find finds an object. A key that cannot be one names nothing.
func (r kindSpec[A, K, M]) find(v *control.View, key string) (m M, err error) {
	k, err := r.key(key)
	if err != nil {
		return m, notFound(r.name, key)
	}
	m, ok := r.get(v, k)
	if ok {
		return m, nil
	}
	if r.missing != nil {
		if err := r.missing(v, k); err != nil {
			return m, err
		}
	}
	return m, notFound(r.name, key)
}

func (r kindSpec[A, K, M]) one(v *control.View, key string) (any, error) {
	m, err := r.find(v, key)
	if err != nil {
		return nil, err
	}
	return r.linked(v, m), nil
}

func (r kindSpec[A, K, M]) state(s *serverContext, v *control.View, key string) (any, error) {
	m, err := r.find(v, key)
	if err != nil {
		return nil, err
	}
	return r.inspect(s, v, m), nil
}

func (r kindSpec[A, K, M]) stateUnset(s *serverContext, v *control.View, key string) (config, oper any, ok bool) {
	if _, err := r.key(key); err != nil {
		return nil, nil, false
	}
	m, ok := r.unset(v)
	if !ok {
		return nil, nil, false
	}
	return r.linked(v, m), r.inspect(s, v, m), true
}

func (r kindSpec[A, K, M]) del(c *control.Controller, key string) (control.Deletion, error) {
	k, err := r.key(key)
	if err != nil {
		return control.Deletion{}, notFound(r.name, key)
	}
	return r.delete(c, k), nil
}

// read turns a body into a wish: the only way from the wire to what control takes.
func (r kindSpec[A, K, M]) read(c *control.Controller, body []byte) (w desiredWrite, err error) {
	var o A
	err = strictjson.Decode(body, &o)
	if r.strict.all != nil {
		err = errors.Join(err, r.strict.unambiguous(body))
	}
	if err != nil {
		return w, err
	}
	m, err := r.parse(o)
	if err != nil {
		return w, err
	}
	valid, err := model.Check(m)
	if err != nil {
		return w, err
	}
	if err := checkOwnKey(body, o.ObjectKey()); err != nil {
		return w, err
	}
	w.change = r.change(c, valid, func(field string) bool { return string(strictjson.Field(body, field)) == `""` })
	w.object, w.key, w.warnings = m, o.ObjectKey(), warnings(m)
	return w, nil
}

// The parts of a view, by subject.
func viewGroups(v *control.View) *control.GroupView      { return v.Groups }
func viewNetworks(v *control.View) *control.NetworkView  { return v.Networks }
func viewPolicies(v *control.View) *control.PolicyView   { return v.Policies }
func viewServices(v *control.View) *control.ServiceView  { return v.Services }
func viewSettings(v *control.View) *control.SettingsView { return v.Settings }
func viewTenants(v *control.View) *control.TenantView    { return v.Tenants }

// listIn is the list of a kind, and getIn its get, by a part of the view.
func listIn[S, M any](of func(*control.View) S, list func(S, model.TenantName) []M) func(*control.View, model.TenantName) []M {
	return func(v *control.View, t model.TenantName) []M { return list(of(v), t) }
}

func getIn[S, K, M any](of func(*control.View) S, get func(S, K) (M, bool)) func(*control.View, K) (M, bool) {
	return func(v *control.View, k K) (M, bool) { return get(of(v), k) }
}

// The use-cases of a controller, by subject.
func endpointUseCases(c *control.Controller) *control.Endpoints { return c.Endpoints }
func networkUseCases(c *control.Controller) *control.Networks   { return c.Networks }
func policyUseCases(c *control.Controller) *control.Policies    { return c.Policies }
func serviceUseCases(c *control.Controller) *control.Services   { return c.Services }
func settingsUseCases(c *control.Controller) *control.Settings  { return c.Settings }
func tenantUseCases(c *control.Controller) *control.Tenants     { return c.Tenants }

// changeAsIs is the change of a kind whose empty fields mean nothing special.
func changeAsIs[S any, M model.Validator](in func(*control.Controller) S, change func(S, model.Valid[M]) control.Change) func(*control.Controller, model.Valid[M], clearedFields) control.Change {
	return func(c *control.Controller, m model.Valid[M], _ clearedFields) control.Change { return change(in(c), m) }
}

// changeByValue likewise is the change of a kind that needs nothing but the object.
func changeByValue[M model.Validator](change func(model.Valid[M]) control.Change) func(*control.Controller, model.Valid[M], clearedFields) control.Change {
	return func(_ *control.Controller, m model.Valid[M], _ clearedFields) control.Change { return change(m) }
}

// byKey is the delete of a kind that needs nothing but the key.
func byKey[K any](del func(K) control.Deletion) func(*control.Controller, K) control.Deletion {
	return func(_ *control.Controller, k K) control.Deletion { return del(k) }
}

// deleteFor is the delete of a kind by a use-case of a controller.
func deleteFor[S, K any](in func(*control.Controller) S, del func(S, K) control.Deletion) func(*control.Controller, K) control.Deletion {
	return func(c *control.Controller, k K) control.Deletion { return del(in(c), k) }
}

// onlyKey, singleton and one are the key, list and get of a kind with one object at most.
func onlyKey(name string) func(string) (struct{}, error) {
	return func(s string) (k struct{}, err error) {
		if s != name {
			err = model.ErrNotFound
		}
		return k, err
	}
}

func singleton[S, M any](of func(*control.View) S, get func(S) (M, bool)) func(*control.View, model.TenantName) []M {
	return func(v *control.View, _ model.TenantName) []M {
		if m, ok := get(of(v)); ok {
			return []M{m}
		}
		return nil
	}
}

func one[S, M any](of func(*control.View) S, get func(S) (M, bool)) func(*control.View, struct{}) (M, bool) {
	return func(v *control.View, _ struct{}) (M, bool) { return get(of(v)) }
}

// handleOf registers a route of a collection.
func (s *server) handleOf(k *kind, method, path string, need access.Capability, h handler) {
	of := namedResource(k.name, "key")
	if !strings.HasSuffix(path, "/{key}") {
		of = nil // a list
	}
	s.router.handle(method, path, need, of, h).kind = k
}

// handleKind registers a collection's routes.
func (s *server) handleKind(k *kind) {
	base, inspect := "/api/v1/"+k.collection, "/api/v1/inspect/"+k.collection
	write := func(w http.ResponseWriter, r *request) (any, error) { return s.objects.write(k, w, r) }
	s.handleOf(k, "GET", base, k.access.list, func(_ http.ResponseWriter, r *request) (any, error) {
		v, err := s.control.View(r.Context())
		if err != nil {
			return nil, err
		}
		return k.list(v, r.scope()), nil
	})
	s.handleOf(k, "GET", base+"/{key}", k.access.get, func(w http.ResponseWriter, r *request) (any, error) {
		v, err := s.control.View(r.Context())
		if err != nil {
			return nil, err
		}
		tag(w, v, k.name, r.PathValue("key"))
		return k.get(v, r.PathValue("key"))
	})
	s.handleOf(k, "POST", base+"/{key}", k.access.write, write) // the body's fields must build the path's key
	s.handleOf(k, "PUT", base+"/{key}", k.access.write, write)
	s.handleOf(k, "DELETE", base+"/{key}", k.access.write, func(_ http.ResponseWriter, r *request) (any, error) {
		key := r.PathValue("key")
		gone, err := k.del(s.control, key)
		if err != nil {
			return nil, err
		}
		return key, s.objects.delete(r, k.name, key, gone)
	})
	s.handleOf(k, "GET", inspect+"/{key}", k.access.inspect, func(_ http.ResponseWriter, r *request) (any, error) {
		v, err := s.control.View(r.Context())
		if err != nil {
			return nil, err
		}
		key := r.PathValue("key")
		config, err := k.get(v, key)
		if errors.Is(err, model.ErrNotFound) && k.unset != nil {
			if config, oper, ok := k.unset(s.serverContext, v, key); ok {
				return struct{ Config, Oper any }{config, oper}, nil
			}
		}
		if err != nil || k.inspect == nil {
			return struct{ Config any }{config}, err
		}
		oper, err := k.inspect(s.serverContext, v, key)
		return struct{ Config, Oper any }{config, visibleTo(r.scope(), oper)}, err
	})
}
