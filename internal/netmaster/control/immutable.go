package control

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// joinRefusals joins what is wrong with several fields to one refusal.
func joinRefusals(err, next error) error {
	if err == nil {
		return next
	}
	return model.Errorf(model.ErrConflict, "%w; %w", err, next)
}

func immutable(field string, old, new any) error {
	was, is := fieldText(old), fieldText(new)
	if was == "" {
		return model.Errorf(model.ErrConflict, "%s %q: cannot change, it was created without", field, is)
	}
	return model.Errorf(model.ErrConflict, "%s %q: cannot change, it was created with %q", field, is, was)
}

// fieldText writes a field's value; an address or prefix that is not there is
// "", as in the API, not netip's "invalid IP".
func fieldText(v any) string {
	if x, ok := v.(interface{ IsValid() bool }); ok && !x.IsValid() {
		return ""
	}
	return fmt.Sprint(v)
}
