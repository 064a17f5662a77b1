package strictjson

import (
	"errors"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

func TestCheckQueryRefusesUnknownParameters(t *testing.T) {
	for raw, want := range map[string]string{
		"": "", "a=1": "", "a=1&b=2": "", "b": "",
		"c=1":     `query parameter "c" is not known; possible are a, b`,
		"a=1&c=1": `query parameter "c" is not known; possible are a, b`,
		"a=%zz":   `the query "a=%zz" cannot be read: `,
	} {
		err := CheckQuery(raw, "a", "b")
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, model.ErrInvalid) || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
	if err := CheckQuery("a=1"); err == nil || err.Error() != `query parameter "a" is not known; this path has none` {
		t.Errorf("a path without parameters: %v", err)
	}
}
