package acitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is what goes wrong with a request.
type Fault int

// The faults.
const (
	None        Fault = iota
	Unavailable       // answers 503 and does nothing
	Ended             // all sessions have ended before it
	Cut               // the connection breaks before it is done
	CutAfter          // the connection breaks after it is done
	Nonsense          // answers 200 with a page, and does nothing
	Empty             // answers 200 with an object of nothing, and does nothing
	Slow              // does nothing, and answers when the client has gone
	Short             // answers with an object less than it says
	Ignored           // answers that a change is done, and does nothing
)

// Request is one that was answered.
type Request struct {
	Method, Path string
	Status       int
	Changes      []Change
}

// APIC is a simulated APIC. Its fields are set before it is used.
type APIC struct {
	User, Password string
	Idle, Life     time.Duration                 // of a session; 0 = 600 s and 24 h
	Now            func() time.Time              // nil = time.Now
	Fault          func(*http.Request) Fault     // nil = nothing goes wrong
	After          func(tree Tree, made Request) // called after each change; must not change tree

	mu       sync.Mutex
	tree     Tree
	sessions map[string]*session
	requests []Request
	serial   int
}

type session struct{ used, began time.Time }

// NewAPIC returns one with tenant common and nothing else.
func NewAPIC() *APIC {
	a := &APIC{User: "admin", Password: "secret", tree: Tree{"uni": {Class: "polUni", Props: map[string]string{}}}, sessions: map[string]*session{}}
	if err := a.Put("uni/tn-common", "fvTenant"); err != nil {
		a.tree = nil // it is one of the model
	}
	return a
}

// Start serves it; the server is the caller's to close.
func (a *APIC) Start() *httptest.Server { return httptest.NewTLSServer(a) }

// Put makes or changes an object as somebody else would, with properties in pairs.
func (a *APIC) Put(dn, class string, props ...string) error {
	b := body{Attributes: map[string]string{}}
	for i := 0; i+1 < len(props); i += 2 {
		b.Attributes[props[i]] = props[i+1]
	}
	_, err := a.do(dn, map[string]body{class: b})
	return err
}

// Delete takes an object and all below it away as somebody else would.
func (a *APIC) Delete(dn string) error {
	class, _, err := locate(dn)
	if err == nil {
		_, err = a.do(dn, map[string]body{class: {Attributes: map[string]string{"status": "deleted"}}})
	}
	return err
}

// Tree returns all that there is.
func (a *APIC) Tree() Tree {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tree)
}

// Requests returns the requests answered since the last call.
func (a *APIC) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.requests
	a.requests = nil
	return out
}

// EndSessions ends all sessions.
func (a *APIC) EndSessions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.sessions)
}

// Sessions returns how many there are.
func (a *APIC) Sessions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.sessions)
}

// do makes a request's changes, all or none.
func (a *APIC) do(dn string, request map[string]body) ([]Change, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	t := &tx{tree: maps.Clone(a.tree), n: a.serial}
	if err := t.post(dn, request); err != nil {
		return nil, err
	}
	a.tree = t.tree
	return t.changes, nil
}

func (a *APIC) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

// ServeHTTP answers as the APIC's REST interface does.
func (a *APIC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := None
	if a.Fault != nil {
		fault = a.Fault(r)
	}
	switch fault {
	case Unavailable:
		http.Error(w, "<html><body><p>Service unavailable</p></body></html>", http.StatusServiceUnavailable)
		return
	case Nonsense:
		fmt.Fprint(w, "<html><body>Welcome</body></html>")
		return
	case Empty:
		fmt.Fprint(w, `{}`)
		return
	case Slow:
		<-r.Context().Done()
		return
	case Cut:
		cut(w)
		return
	case Ended:
		a.EndSessions()
	case Ignored:
		if r.Method == http.MethodPost && !strings.Contains(r.URL.Path, "aaa") {
			fmt.Fprint(w, `{"totalCount":"0","imdata":[]}`)
			return
		}
	case None, CutAfter, Short:
	}
	made := Request{Method: r.Method, Path: r.URL.Path, Status: http.StatusOK}
	items, changes, err := a.answer(r)
	made.Changes = changes
	if err != nil {
		var no *refusal
		if !errors.As(err, &no) {
			no = &refusal{400, err.Error()}
		}
		made.Status = http.StatusBadRequest
		if no.code == 401 || no.code == 403 {
			made.Status = no.code
		}
		items = []map[string]any{{"error": map[string]any{"attributes": map[string]string{"code": strconv.Itoa(no.code), "text": no.text}}}}
	}
	a.mu.Lock()
	a.requests = append(a.requests, made)
	tree := a.tree
	a.mu.Unlock()
	if len(changes) > 0 && a.After != nil {
		a.After(tree, made)
	}
	if fault == CutAfter {
		cut(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(made.Status)
	total := strconv.Itoa(len(items))
	if items == nil {
		items = []map[string]any{}
	}
	if fault == Short {
		items = items[:max(len(items)-1, 0)]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"totalCount": total, "imdata": items}) // who asked has gone
}

var eq = regexp.MustCompile(`^eq\((\w+)\.(\w+),"([^"]*)"\)$`)

// answer does what is asked.
func (a *APIC) answer(r *http.Request) (items []map[string]any, changes []Change, err error) {
	path, ok := strings.CutSuffix(strings.Replace(r.URL.Path, "/api/node/", "/api/", 1), ".json")
	if !ok {
		return nil, nil, refuse(400, "only .json is spoken here")
	}
	var request map[string]body
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			return nil, nil, refuse(400, "JSON parse error: %v", err)
		}
	}
	if path == "/api/aaaLogin" {
		items, err = a.login(request)
		return items, nil, err
	}
	token, err := a.session(r)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case path == "/api/aaaRefresh":
		return []map[string]any{a.begin(a.age(token))}, nil, nil
	case path == "/api/aaaLogout":
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.sessions, token)
		return nil, nil, nil
	case r.Method == http.MethodPost && (path == "/api/mo" || strings.HasPrefix(path, "/api/mo/")):
		changes, err = a.do(strings.TrimPrefix(strings.TrimPrefix(path, "/api/mo"), "/"), request)
		return nil, changes, err
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/api/mo/"):
		items, err = a.query(r, strings.TrimPrefix(path, "/api/mo/"), "")
		return items, nil, err
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/api/class/"):
		rest := strings.TrimPrefix(path, "/api/class/") // a class, or a class below a DN
		i := strings.LastIndexByte(rest, '/')
		items, err = a.query(r, rest[:max(i, 0)], rest[i+1:])
		return items, nil, err
	}
	return nil, nil, refuse(400, "no such request: %s %s", r.Method, path)
}

// query finds objects below dn, of a class, or both.
func (a *APIC) query(r *http.Request, dn, class string) (items []map[string]any, err error) {
	depth, only, filter := "self", map[string]bool{}, []string(nil)
	for k, v := range r.URL.Query() {
		switch k {
		case "query-target":
			if depth = v[0]; depth != "self" && depth != "children" && depth != "subtree" {
				return nil, refuse(400, "query-target %s", depth)
			}
		case "target-subtree-class":
			for c := range strings.SplitSeq(v[0], ",") {
				if only[c] = true; model[c] == nil {
					return nil, refuse(122, "unknown managed object class %s", c)
				}
			}
		case "query-target-filter":
			m := eq.FindStringSubmatch(v[0])
			if m == nil || model[m[1]] == nil || model[m[1]].props[m[2]] == nil {
				return nil, refuse(400, "filter %s", v[0])
			}
			filter = m[1:]
		default:
			return nil, refuse(400, "query %s is not simulated", k)
		}
	}
	if class != "" && model[class] == nil {
		return nil, refuse(122, "unknown managed object class %s", class)
	}
	if dn != "" {
		if _, _, err := locate(dn); err != nil {
			return nil, err
		}
	}
	tree := a.Tree()
	for _, at := range slices.Sorted(maps.Keys(tree)) {
		o := tree[at]
		in := class == o.Class && (dn == "" || strings.HasPrefix(at, dn+"/"))
		if class == "" {
			in = depth != "children" && at == dn || depth == "children" && at != "uni" && above(at) == dn || depth == "subtree" && strings.HasPrefix(at, dn+"/")
		}
		if !in || len(only) > 0 && !only[o.Class] || filter != nil && (o.Class != filter[0] || o.Props[filter[1]] != filter[2]) {
			continue
		}
		items = append(items, map[string]any{o.Class: map[string]any{"attributes": tree.response(at)}})
	}
	return items, nil
}

func (a *APIC) login(request map[string]body) ([]map[string]any, error) {
	u := request["aaaUser"].Attributes
	if u["name"] != a.User || u["pwd"] != a.Password {
		return nil, refuse(401, "Username or password is incorrect - FAILED local authentication")
	}
	return []map[string]any{a.begin(a.now())}, nil
}

// begin makes a session that a login at the given time began.
func (a *APIC) begin(began time.Time) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	token := "token" + strconv.Itoa(a.serial)
	a.sessions[token] = &session{a.now(), began}
	idle, life := a.limits()
	return map[string]any{"aaaLogin": map[string]any{"attributes": map[string]string{
		"token": token, "refreshTimeoutSeconds": strconv.Itoa(int(idle.Seconds())), "maximumLifetimeSeconds": strconv.Itoa(int(life.Seconds())),
		"creationTime": strconv.FormatInt(a.now().Unix(), 10), "userName": a.User,
	}}}
}

func (a *APIC) limits() (idle, life time.Duration) {
	if idle, life = a.Idle, a.Life; idle == 0 {
		idle = 600 * time.Second
	}
	if life == 0 {
		life = 24 * time.Hour
	}
	return idle, life
}

func (a *APIC) age(token string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[token]; s != nil {
		return s.began
	}
	return a.now()
}

// session returns the token of a request that is within a session.
func (a *APIC) session(r *http.Request) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	idle, life := a.limits()
	sent := false
	for _, c := range r.Cookies() { // after another login a client may send its former token too
		if !strings.EqualFold(c.Name, "APIC-cookie") {
			continue
		}
		sent = true
		// Only a refresh has a session last longer.
		if s := a.sessions[c.Value]; s != nil && a.now().Sub(s.used) < idle && a.now().Sub(s.began) < life {
			return c.Value, nil
		}
	}
	if sent {
		return "", refuse(403, "Token was invalid (Error: Token timeout)")
	}
	return "", refuse(403, "Need a valid webtoken cookie (named APIC-Cookie) or a signed request with signature in the cookie.")
}
