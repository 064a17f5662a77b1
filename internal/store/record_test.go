package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	A int `json:"a,omitempty"`
}

type outer struct {
	Name string           `json:"name"`
	In   inner            `json:"in,omitzero"`
	List []inner          `json:"list,omitempty"`
	Map  map[string]inner `json:"map,omitempty"`
}

// Replacing a record keeps fields that this program does not know, wherever
// they can be kept, and refuses where they cannot or the version is newer.
func TestReplacedRecordsKeepUnknownFields(t *testing.T) {
	v := outer{Name: "new", In: inner{A: 2}}
	for _, test := range []struct{ name, old, want string }{
		{"known", `{"v":1,"d":{"name":"old","in":{"a":1}}}`, `{"v":2,"d":{"name":"new","in":{"a":2}}}`},
		{"unknown field", `{"v":2,"d":{"name":"old","x":[1]}}`, `{"v":2,"d":{"in":{"a":2},"name":"new","x":[1]}}`},
		{"unknown inside", `{"v":2,"d":{"name":"old","in":{"a":1,"b":{"c":1}}}}`, `{"v":2,"d":{"in":{"a":2,"b":{"c":1}},"name":"new"}}`},
		{"cleared field", `{"v":2,"d":{"name":"old","list":[{"a":1}],"x":1}}`, `{"v":2,"d":{"in":{"a":2},"name":"new","x":1}}`},
		{"case", `{"v":2,"d":{"NAME":"old"}}`, `{"v":2,"d":{"name":"new","in":{"a":2}}}`},
		{"newer", `{"v":3,"d":{"name":"old"}}`, ErrNewerRecord.Error()},
		{"no record", `[]`, "decode record: "},
	} {
		got, err := ReplaceRecord(2, []byte(test.old), v)
		if err != nil {
			got = []byte(err.Error())
			if strings.HasPrefix(err.Error(), test.want) {
				continue
			}
		}
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
	// In a list it is unknown which element an unknown field belongs to.
	full := outer{List: []inner{{A: 1}}, Map: map[string]inner{"k": {}}}
	for _, old := range []string{`{"v":2,"d":{"list":[{"a":1,"x":1}]}}`, `{"v":2,"d":{"map":{"k":{"x":1}}}}`} {
		if got, err := ReplaceRecord(2, []byte(old), full); !errors.Is(err, ErrNewerRecord) {
			t.Errorf("unknown field in %s: %s, %v", old, got, err)
		}
	}
}

// No stored bytes make decoding or replacing panic, and what was replaced
// decodes to what was written.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"d":{"name":"a"}}`, `{"v":1,"d":{"in":{"a":1,"b":2},"x":null}}`, `{"v":2,"d":null}`, `{"v":1,"d":[]}`, `{`,
	} {
		f.Add([]byte(seed))
	}
	want := outer{Name: "n", In: inner{A: 1}}
	f.Fuzz(func(t *testing.T, old []byte) {
		_, _, _ = DecodeRecord[outer](old)
		b, err := ReplaceRecord(1, old, want)
		if err != nil {
			return
		}
		got, version, err := DecodeRecord[outer](b)
		if err != nil || version != 1 {
			t.Fatalf("%s became %s: version %d, %v", old, b, version, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s became %s: %s", old, b, diff)
		}
	})
}
