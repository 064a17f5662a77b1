package store_test

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// The commit key lies where one watch range covers it and what agents mirror,
// but no allocation.
func TestWatchRangeCoversTheCommitKey(t *testing.T) {
	for _, test := range []struct {
		prefixes []string
		commits  bool
		from, to string
	}{
		{[]string{tables.StatePrefix + "tenant/blue/", tables.GlobalPrefix}, false, tables.GlobalPrefix, tables.StatePrefix + "tenant/blue0"},
		{[]string{tables.StatePrefix + "tenant/blue/", tables.GlobalPrefix}, true, store.CommitKey, tables.StatePrefix + "tenant/blue0"},
		{[]string{tables.AllocPrefix}, true, tables.AllocPrefix, store.CommitKey + "\x00"},
		{[]string{tables.StatePrefix, tables.GlobalPrefix}, true, tables.StatePrefix, store.Root + "state0"},
		{[]string{""}, true, "", ""},
		{nil, true, store.CommitKey, store.CommitKey + "\x00"},
	} {
		m := store.NewMirrorState(test.prefixes, test.commits)
		if from, to := m.Span(); from != test.from || to != test.to {
			t.Errorf("%q, %v: got [%q, %q), want [%q, %q)", test.prefixes, test.commits, from, to, test.from, test.to)
		}
	}
	if store.CommitKey <= store.PrefixEnd(tables.AllocPrefix) || store.CommitKey >= tables.GlobalPrefix {
		t.Errorf("%s must sort between %s and %s", store.CommitKey, tables.AllocPrefix, tables.GlobalPrefix)
	}
}
