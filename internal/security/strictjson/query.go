package strictjson

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// CheckQuery refuses query parameters that would have no effect, of a request's raw query.
// Errors are of kind model.ErrInvalid.
func CheckQuery(raw string, known ...string) error {
	given, err := url.ParseQuery(raw)
	if err != nil {
		return model.Errorf(model.ErrInvalid, "the query %q cannot be read: %w", clip([]byte(raw)), err)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) {
			continue
		}
		are := "this path has none"
		if len(known) > 0 {
			are = "possible are " + strings.Join(known, ", ")
		}
		return model.Errorf(model.ErrInvalid, "query parameter %q is not known; %s", clip([]byte(name)), are)
	}
	return nil
}
