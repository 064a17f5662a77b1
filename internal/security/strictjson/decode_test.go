package strictjson

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestBadObjectsAreRefusedByField: what is not one JSON object of the right types is refused
// as invalid, naming the field and its value.
func TestBadObjectsAreRefusedByField(t *testing.T) {
	tests := []struct{ body, want string }{
		{``, `body: must not be empty: a JSON object is expected`},
		{" \n", `body: must not be empty: a JSON object is expected`},
		{`{not json`, `body: is not valid JSON: invalid character 'n' looking for beginning of object key string at byte 2`},
		{`{"tenantName":"x"`, `body: is not valid JSON: it ends too early, after 17 bytes`},
		{`[]`, `body: must be a JSON object, not an array`},
		{`[1`, `body: is not valid JSON: it ends too early, after 2 bytes`},
		{`"x"`, `body: must be a JSON object, not a string`},
		{`null`, `body: must be a JSON object, not null`},
		{`17`, `body: must be a JSON object, not a number`},
		{`true`, `body: must be a JSON object, not a boolean`},
		{`false`, `body: must be a JSON object, not a boolean`},
		{`{"tenantName":"x"} trailing`, `body: must end after the JSON object, but "trailing" follows`},
		{`{"tenantName":"x"}{}`, `body: must end after the JSON object, but "{}" follows`},
		{`{"tenantName":5}`, `tenantName "5": must be a string, not a number`},
		{`{"pktTag":"5"}`, `pktTag "5": must be a whole number, not a string`},
		{`{"pktTag":1.5}`, `pktTag "1.5": must be a whole number of reasonable size`},
		{`{"pktTag":99999999999999999999}`, `pktTag "99999999999999999999": must be a whole number of reasonable size`},
		{`{"subnet":[]}`, `subnet "[]": must be a string, not an array`},
		{`{"subnet":{}}`, `subnet "{}": must be a string, not an object`},
		{`{"link-sets":7}`, `link-sets "7": must be an object, not a number`},
		{`{"tenantName":"x","bogus":1}`, `field "bogus": there is no such field`},
		{`{"SUBNET":true}`, `subnet "true": must be a string, not a boolean`},
		{`{"link-sets":{"Services":{"x":[]}}}`, `Services "{\"x\":[]}": every element must be an object`},
		{"{\"tenantName\":\"\xff\"}", `body: must be UTF-8`},
	}
	for _, tt := range tests {
		var o api.Network
		err := Decode([]byte(tt.body), &o)
		if err == nil || !errors.Is(err, model.ErrInvalid) || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.body, err, tt.want)
		}
	}
}

// TestElementOfTheWrongTypeNamesTheArray: an element of the wrong type names the array.
func TestElementOfTheWrongTypeNamesTheArray(t *testing.T) {
	var o api.EndpointGroup
	err := Decode([]byte(`{"policies":["p",5]}`), &o)
	const want = `policies "[\"p\",5]": every element must be a string`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestCaseAndSpaceAreAccepted: other case and space around are fine, as in 1.x.
func TestCaseAndSpaceAreAccepted(t *testing.T) {
	for _, body := range []string{
		`{"TENANTNAME":"x"}`, " {\"tenantName\":\"x\"}\n\n", `{"key":"zzz","tenantName":"x"}`,
		`{"tenantName":"x","link-sets":null}`,
	} {
		var o api.Tenant
		if err := Decode([]byte(body), &o); err != nil || o.TenantName != "x" {
			t.Errorf("%s: %v, %+v", body, err, o)
		}
	}
}

// Wrong input is repeated in a refusal, but not all of it.
func TestRefusalRepeatsTheBeginning(t *testing.T) {
	var o api.Tenant
	for _, n := range []int{maxShown, maxShown + 1} {
		text := strings.Repeat("x", n)
		want := `"` + text + `"`
		if n > maxShown {
			want = `"` + text[:maxShown] + `..."`
		}
		if err := Decode([]byte("{}"+text), &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestReadTakesAtMostItsLimit(t *testing.T) {
	var o api.Tenant
	const body = `{"tenantName":"x"}`
	if err := Read(strings.NewReader(body), int64(len(body)), &o); err != nil || o.TenantName != "x" {
		t.Errorf("as long as may be: %v, %+v", err, o)
	}
	if err := Read(strings.NewReader(body), int64(len(body)-1), &o); err == nil || err.Error() != "body: must be at most 17 bytes" {
		t.Errorf("one byte too long: %v", err)
	}
	err := Read(io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrClosedPipe)), 100, &o)
	if !errors.Is(err, model.ErrInvalid) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("what breaks off: %v", err)
	}
}

// A field is found as encoding/json finds it: by its name, or else in any case.
func TestFieldIsFoundInAnyCase(t *testing.T) {
	for path, want := range map[string]string{"a": "1", "A": "2", "b.c": "3", "B.C": "3", "none": "", "b.none": "", "b.c.d": ""} {
		if got := string(Field([]byte(`{"a":1,"A": 2 ,"b":{"c":3}}`), path)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// Below the elements of an array no text of the field is found, and its kind is named.
func TestDecodeRefusesFieldsOfElements(t *testing.T) {
	var o struct {
		All []struct {
			S string
			U uint
			L []string
			B bool
		}
	}
	for field, want := range map[string]string{
		`"S":5`: "All.S: must be a string, not a number", `"S":[]`: "All.S: must be a string, not an array", `"S":{}`: "All.S: must be a string, not an object", `"S":true`: "All.S: must be a string, not a boolean",
		`"U":"x"`: "All.U: must be a whole number, not a string", `"L":"x"`: "All.L: must be an array, not a string", `"B":"x"`: "All.B: must be true or false, not a string",
	} {
		if err := Decode([]byte(`{"All":[{`+field+`}]}`), &o); err == nil || err.Error() != "body: "+want {
			t.Errorf("%s: %v, want body: %s", field, err, want)
		}
	}
}
