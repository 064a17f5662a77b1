package apiserver

import (
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// unsupportedKinds are 1.x's kinds whose objects never exist, name by collection: 1.x could not store
// them, and its clients list them.
var unsupportedKinds = map[string]string{"volumes": "volume", "volumeProfiles": "volumeProfile"}

// errUnsupported refuses an object of unsupportedKinds.
func errUnsupported(name string) error {
	return model.Errorf(model.ErrInvalid, "a %s cannot be created: Contiv makes no storage. Give containers their volumes by their runtime, and leave this object out", name)
}

// handleUnsupported serves unsupportedKinds: empty lists, nothing to find, and a sentence for who creates
// one.
func (s *server) handleUnsupported() {
	for collection, name := range unsupportedKinds {
		path := "/api/v1/" + collection
		of := namedResource(name, "key")
		absent := func(_ http.ResponseWriter, r *request) (any, error) { return nil, notFound(name, r.PathValue("key")) }
		refuse := func(http.ResponseWriter, *request) (any, error) { return nil, errUnsupported(name) }
		s.router.handle("GET", path, ofTenants.list, nil, func(http.ResponseWriter, *request) (any, error) { return []any{}, nil })
		s.router.handle("GET", path+"/{key}", ofTenants.get, of, absent)
		s.router.handle("GET", "/api/v1/inspect/"+collection+"/{key}", ofTenants.inspect, of, absent)
		s.router.handle("DELETE", path+"/{key}", ofTenants.write, of, absent)
		s.router.handle("POST", path+"/{key}", ofTenants.write, of, refuse)
		s.router.handle("PUT", path+"/{key}", ofTenants.write, of, refuse)
	}
}

// unsupportedExchange describes a route of handleUnsupported.
func unsupportedExchange(r *route) (x exchange, ok bool) {
	collection := collectionIn(r.path)
	x = exchange{"1.x's " + collection + ": none exists, and none can be created", nil, ""}
	if !strings.Contains(r.path, "{") {
		x.out = []struct{}{}
	}
	if r.method == http.MethodPost || r.method == http.MethodPut {
		x.in = map[string]any{}
	}
	return x, unsupportedKinds[collection] != ""
}
