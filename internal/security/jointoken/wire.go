package jointoken

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Paths of a member's enrollment server that hosts ask.
const (
	HostPath    = "/join/v1/hosts"
	RenewPath   = "/join/v1/hosts/renew"
	ServersPath = "/join/v1/hosts/doors" // where members answer, to hosts with a certificate
)

// HostRequest asks for a host's certificate: by a token, by the token of a service
// account, or by the certificate that is to be renewed, which the connection shows.
type HostRequest struct {
	ID     string `json:"id,omitempty"`     // of the token
	Secret string `json:"secret,omitempty"` // of the token
	// Account is the token of a Kubernetes service account, in place of the two above.
	Account string `json:"account,omitempty"`
	Name    string `json:"name"` // of the host
	CSR     []byte `json:"csr"`  // in DER, with the addresses by which others connect
}

// HostAnswer is what a host keeps.
type HostAnswer struct {
	Certificate []byte      `json:"certificate"` // in PEM, with the links to former authorities
	Authorities []byte      `json:"authorities"` // in PEM: whom to trust
	Servers     []string    `json:"doors"`       // host:port, where to renew it
	Members     Fingerprint `json:"members"`     // of the authority that enrollment servers show
}

// Kind is a kind of errors on the way.
type Kind struct {
	Name string
	Kind error
	code int // of HTTP
}

// Kinds are the kinds of errors that are transferred.
var Kinds = []Kind{
	{"invalid", model.ErrInvalid, http.StatusBadRequest},
	{"not-found", model.ErrNotFound, http.StatusNotFound},
	{"exists", model.ErrExists, http.StatusConflict},
	{"conflict", model.ErrConflict, http.StatusConflict},
	{"exhausted", model.ErrExhausted, http.StatusInsufficientStorage},
	{"unavailable", model.ErrUnavailable, http.StatusServiceUnavailable},
}

// refusal is an error on the way.
type refusal struct {
	Kind  string `json:"kind"`
	Error string `json:"error"`
}

// Refuse answers with an error of a kind.
func Refuse(w http.ResponseWriter, err error) {
	for _, k := range Kinds {
		if errors.Is(err, k.Kind) {
			Reply(w, k.code, refusal{k.Name, err.Error()})
			return
		}
	}
	Reply(w, http.StatusInternalServerError, refusal{"", err.Error()})
}

// Reply answers in JSON.
func Reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who has gone reads no error
}

// Call makes one request and reads its answer. An error with a kind was answered by a
// member; an error without one means that no member answered.
func Call(ctx context.Context, c *http.Client, method, url string, body io.Reader, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	dec := json.NewDecoder(io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode == http.StatusOK {
		return dec.Decode(into)
	}
	var no refusal
	if err := dec.Decode(&no); err != nil || no.Error == "" {
		return errors.New("it does not answer like a member")
	}
	for _, k := range Kinds {
		if no.Kind == k.Name {
			return model.Errorf(k.Kind, "%s", no.Error)
		}
	}
	return errors.New(no.Error)
}

// IsKind reports whether a member has answered.
func IsKind(err error) bool {
	return slices.ContainsFunc(Kinds, func(k Kind) bool { return errors.Is(err, k.Kind) })
}
