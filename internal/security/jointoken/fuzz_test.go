package jointoken

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// FuzzParse: a text is refused, without saying what it is, or is a token that names where the
// cluster is, and is the same when it is written and read again.
func FuzzParse(f *testing.F) {
	good := Token{Addresses: []string{"10.0.0.1:9997", "[fd00::1]:9997"}, ID: strings.Repeat("A", IDLen), Secret: strings.Repeat("7", SecretLen)}
	host := good
	host.Host = "h1"
	for _, t := range []Token{good, host} {
		f.Add(t.Text())
	}
	for _, s := range []string{
		`{"a":["0.0.0.0:1"],"f":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","i":"AAAAAAAAAA","s":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"a":[],"f":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","i":"AAAAAAAAAA","s":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
		`{"a":["h:1"],"f":"AAAA","i":"AAAAAAAAAA","s":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`, `{"i":7}`, `null`, ``,
	} {
		f.Add(tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(s)))
		f.Add(s)
	}
	check := func(t *testing.T, shown string) {
		t.Helper()
		got, err := Parse(shown)
		if err != nil {
			if !errors.Is(err, model.ErrInvalid) || !reflect.DeepEqual(got, Token{}) || len(shown) > 60 && strings.Contains(err.Error(), shown) {
				t.Errorf("%q: %+v, %v", shown, got, err)
			}
			return
		}
		if len(got.Addresses) == 0 || strings.Contains(got.String(), got.Secret) {
			t.Errorf("%q is taken as %v, %+v", shown, got, got.Addresses)
		}
		if again, err := Parse(got.Text()); len(got.Text()) <= maxToken && (err != nil || !reflect.DeepEqual(again, got)) {
			t.Errorf("%q is %+v, again %+v, %v", shown, got, again, err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		check(t, text)
		check(t, tokenPrefix+base64.RawURLEncoding.EncodeToString([]byte(text)))
	})
}

// said is a server that answers everything alike.
type said struct {
	code int
	body []byte
}

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.code, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(s.body)), Request: r}, nil
}

// FuzzCall: whatever an enrollment server answers is an answer, with the status of one, or an error that says
// something; one of a kind is what a member says by Refuse.
func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"certificate":"AAAA","authorities":"AAAA","doors":["h:1"],"members":[1,2]}`, `{"kind":"conflict","error":"the token was used"}`,
		`{"kind":"conflict"}`, `{"kind":"","error":"why"}`, `{"kind":"other","error":"why"}`, `{"error":7}`, `{}`, `null`, `[]`, ``, `<html>`,
	} {
		f.Add(uint16(http.StatusOK), []byte(s))
		f.Add(uint16(http.StatusConflict), []byte(s))
	}
	f.Fuzz(func(t *testing.T, code uint16, body []byte) {
		var a HostAnswer
		err := Call(context.Background(), &http.Client{Transport: said{int(code), body}}, http.MethodPost, "http://h/x", nil, &a)
		switch {
		case err == nil && code != http.StatusOK:
			t.Errorf("%d %q is an answer", code, body)
		case err != nil && strings.TrimSpace(err.Error()) == "":
			t.Errorf("%d %q is an error that says nothing", code, body)
		case IsKind(err) && (code == http.StatusOK || !bytes.Contains(body, []byte("{"))):
			t.Errorf("%d %q is taken for a member's: %v", code, body, err)
		}
	})
}
