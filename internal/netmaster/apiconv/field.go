package apiconv

import "github.com/contiv/netplugin/v2/internal/model"

// Optional parses s unless it is empty, which gives the zero value.
func Optional[T any](s string, parse func(string) (T, error)) (T, error) {
	if s == "" {
		var zero T
		return zero, nil
	}
	return parse(s)
}

// Renamed gives a field error the name that the field has in the request.
func Renamed(err error, field string) error {
	if f, ok := err.(*model.FieldError); ok { //nolint:errorlint // parsers of model return it bare
		return &model.FieldError{Field: field, Value: f.Value, Want: f.Want}
	}
	return err
}

// checkOwner checks the owner in an object. Users may send an object as they got it, owner
// included, but cannot set the owner.
func checkOwner(owner string) error {
	if owner == "" || owner == string(model.OwnerUser) || owner == string(model.OwnerKubernetes) {
		return nil
	}
	return model.InvalidField("owner", owner, "must be empty, user or kubernetes; it is read-only")
}

// Owner tells whose an object is, by the object of Kubernetes that has it: empty = the
// users'.
func Owner(object string) string {
	if object == "" {
		return ""
	}
	return string(model.OwnerKubernetes)
}
