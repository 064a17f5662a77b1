package translate

import (
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Problem is what an object says and cannot be had, and what holds instead.
type Problem struct {
	Field string // as in the object: spec.ingress[0].from[2]
	Text  string
}

func (p Problem) String() string { return p.Field + ": " + p.Text }

// problems collects those of one object.
type problems []Problem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
}

// cause is what an error of model says is wrong, without the field's name there,
// which no user of Kubernetes knows.
func cause(err error) string {
	if f, ok := errors.AsType[*model.FieldError](err); ok {
		return fmt.Sprintf("%q %s", f.Value, f.Want)
	}
	return err.Error()
}
