package jointoken

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

func TestParseTakesWholeTokensAlone(t *testing.T) {
	good := New([]string{"h1:9997", "[fd00::1]:9997"}, Fingerprint{1, 2})
	text := good.Text()
	padded := text + strings.Repeat(" ", maxToken-len(text))
	for _, shown := range []string{text, " " + text + "\n", padded} {
		if got, err := Parse(shown); err != nil || !reflect.DeepEqual(got, good) {
			t.Errorf("%q: %+v, %v", shown, got, err)
		}
	}
	raw := func(s string) string { return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	fields := `"a":["h1:9997"],"i":"` + good.ID + `","s":"` + good.Secret + `","f":"` + strings.Repeat("A", 42)
	if _, err := Parse(raw(`{` + fields + `A="}`)); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"without its prefix":            strings.TrimPrefix(text, tokenPrefix),
		"too long":                      padded + " ",
		"no base64 at its end":          text + "!",
		"of a field of another type":    raw(`{` + fields + `A=","h":7}`),
		"of a short fingerprint":        raw(`{` + fields + `=="}`),
		"of nothing that could be JSON": raw(""),
	}
	for what, spoil := range map[string]func(*Token){
		"without addresses":    func(k *Token) { k.Addresses = nil },
		"of a wrong address":   func(k *Token) { k.Addresses = []string{"h1:9997", "h1"} },
		"of a short id":        func(k *Token) { k.ID = k.ID[1:] },
		"of another letter":    func(k *Token) { k.ID = "a" + k.ID[1:] },
		"of a long secret":     func(k *Token) { k.Secret += "A" },
		"of a spoilt secret":   func(k *Token) { k.Secret = "1" + k.Secret[1:] },
		"without a secret":     func(k *Token) { k.Secret = "" },
		"without a port":       func(k *Token) { k.Addresses[0] = "h1:" },
		"of an address of all": func(k *Token) { k.Addresses[0] = "0.0.0.0:9997" },
	} {
		k := New([]string{"h1:9997"}, Fingerprint{1})
		spoil(&k)
		bad[what] = k.Text()
	}
	for what, shown := range bad {
		if got, err := Parse(shown); !errors.Is(err, model.ErrInvalid) || !reflect.DeepEqual(got, Token{}) {
			t.Errorf("a token %s: %+v, %v", what, got, err)
		}
	}
}

func TestAddressesAreHostAndPort(t *testing.T) {
	for a, want := range map[string]string{
		"h1:9997": "", "10.0.0.1:9997": "", "[fd00::1]:9997": "",
		"h1": "must be host:port", ":9997": "must be host:port", "h1:": "must be host:port", "h1:0": "must be host:port", "fd00::1:9997": "must be host:port",
		"0.0.0.0:9997": "reach this one", "[::]:9997": "reach this one",
	} {
		err := CheckAddress(a)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, model.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", a, err, want)
		}
	}
}
