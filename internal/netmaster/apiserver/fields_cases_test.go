package apiserver

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/archtest"
)

// kindCases are the cases of one collection: a valid object, the fields that
// build its key, and, per field, changes of the object that are accepted and
// such that are refused. A change is a JSON object that is laid over the valid
// one.
type kindCases struct {
	object string
	key    []string
	fields map[string]cases
	// effects shows of each field, or of each value where there is a choice
	// ("encap=vlan"), the test that fails when it does nothing. What does nothing is
	// in internal/model instead, as the kind's NoEffects.
	effects map[string]archtest.Effect
}

// fieldCases has every collection, entered by the kinds' test files.
var fieldCases = map[string]kindCases{}

func tested(collection string, c kindCases) kindCases {
	fieldCases[collection] = c
	return c
}

type cases struct{ pass, fail []string }

var (
	text64  = strings.Repeat("x", 64)
	text65  = strings.Repeat("x", 65)
	text256 = strings.Repeat("x", 256)
	text257 = strings.Repeat("x", 257)
)

// nameCases are those of a name of at most 64 characters.
func nameCases(field string) cases {
	c := cases{}
	for _, v := range []string{"a", "A1", "a-b.c-d", "7", text64} {
		c.pass = append(c.pass, change(field, v))
	}
	for _, v := range []string{"", "a_b", "a b", "-a", "a-", "a..b", ".a", "a/b", "a:b", "ä", "a\n", text65} {
		c.fail = append(c.fail, change(field, v))
	}
	return c
}

// refCases are those of a field that names something of the tenant.
func refCases(field, exists string, optional bool) cases {
	c := cases{pass: []string{change(field, exists)}, fail: []string{change(field, "none"), change(field, "a_b"), change(field, text65)}}
	if optional {
		c.pass = append(c.pass, change(field, ""))
	} else {
		c.fail = append(c.fail, change(field, ""))
	}
	return c
}

func change(field, v string) string {
	return mustJSON(map[string]any{field: v})
}

func ownerCases() cases {
	return cases{
		pass: []string{`{"owner":""}`, `{"owner":"user"}`, `{"owner":"kubernetes"}`},
		fail: []string{`{"owner":"somebody"}`, `{"owner":7}`},
	}
}

func tenantCases() cases {
	return cases{
		pass: []string{`{"tenantName":"blue"}`},
		fail: []string{`{"tenantName":"none"}`, `{"tenantName":""}`, `{"tenantName":"a_b"}`, change("tenantName", text65), `{"tenantName":7}`},
	}
}

func tagCases() cases {
	return cases{
		pass: []string{`{"cfgdTag":""}`, `{"cfgdTag":"a.b-c"}`, change("cfgdTag", strings.Repeat("x", 128))},
		fail: []string{`{"cfgdTag":"a_b"}`, change("cfgdTag", strings.Repeat("x", 129))},
	}
}
