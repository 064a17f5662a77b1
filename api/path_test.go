package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestClientSendsNoRequestForDotOrEmptyNames(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the server was asked: %s %s", r.Method, r.URL.Path)
	}))
	defer srv.Close()
	c, err := NewClient(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", ".."} {
		for what, err := range map[string]error{
			"rule":    c.DeleteNetworkPolicyRule(t.Context(), "red:npred", name),
			"tenant":  c.Tenants().Delete(t.Context(), name),
			"confirm": c.Confirm(t.Context(), name),
		} {
			if err == nil {
				t.Errorf("%s %q: no error", what, name)
			}
		}
	}
}
