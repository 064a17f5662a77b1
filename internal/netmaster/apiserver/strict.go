package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// strictness says what in a request's body is refused beyond what its types refuse.
type strictness struct {
	// labels is the field, in small letters, that is no object of fields, but of
	// labels: their names differ by case, and each has a text.
	labels string
	// all are the fields, in small letters, that stand for all when they are left
	// out, and are refused where they are there and empty.
	all map[string]bool
}

var (
	// strictPolicy is for policies, in which an empty field is one of a template
	// that has found nothing, and would mean anybody.
	strictPolicy = strictness{labels: "matchlabels", all: map[string]bool{
		"applies": true, "peers": true, "ports": true, "group": true, "network": true, "cidr": true, "except": true, "matchlabels": true, "matchexpressions": true, "values": true,
	}}
	// strictEndpoint is for what runtimes tell of endpoints: policies select by labels.
	strictEndpoint = strictness{labels: "labels"}
)

// unambiguous refuses what would mean more than it looks like: a name that an
// object has twice, in whatever case, of which the last would count; a label
// without a text; and fields that must not be empty. body is valid JSON. What is in
// the server's fields does not matter.
func (s strictness) unambiguous(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return s.walkValue(dec, "")
}

// fold writes a field's name so that two are the same if encoding/json takes them
// for the same: in small letters, also for the two letters outside of ASCII that
// are some in capitals.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// elementOf stands before the name of a list, as the name of its elements.
const elementOf = "element of "

// walkValue reads one value, of the field of a name.
func (s strictness) walkValue(dec *json.Decoder, field string) error {
	token, err := dec.Token()
	if err != nil {
		return strictjson.BadBody("is not valid JSON: %w", err)
	}
	switch token {
	case json.Delim('{'):
		return s.walkObject(dec, field)
	case json.Delim('['):
		n := 0
		for ; dec.More(); n++ {
			if err := s.walkValue(dec, elementOf+field); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return strictjson.BadBody("is not valid JSON: %w", err)
		}
		if n == 0 {
			return s.emptyField(field)
		}
	case nil, "":
		if list, element := strings.CutPrefix(field, elementOf); element && token == nil {
			return model.Errorf(model.ErrInvalid, "%s: must not have null among its elements", list)
		}
		return s.emptyField(field)
	}
	return nil
}

// emptyField refuses a field that is there and empty, if that would mean all.
func (s strictness) emptyField(field string) error {
	if !s.all[fold(field)] {
		return nil
	}
	return model.Errorf(model.ErrInvalid, "%s: must not be empty: omit it for all", field)
}

func (s strictness) walkObject(dec *json.Decoder, field string) error {
	seen := map[string]string{}
	labels := fold(field) == s.labels
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return strictjson.BadBody("is not valid JSON: %w", err)
		}
		name := fmt.Sprint(token)
		same := fold(name)
		if labels {
			same = name
		}
		if other, twice := seen[same]; twice {
			if labels {
				return model.Errorf(model.ErrInvalid, "%s: has the label %q twice: which of them counts is not clear", field, name)
			}
			return strictjson.BadBody("has the field %q twice in one object, as %q too: which of them counts is not clear", other, name)
		}
		seen[same] = name
		if field == "" && slices.Contains(serverFields, same) { // among their keys are names of objects
			if err := dec.Decode(new(json.RawMessage)); err != nil {
				return strictjson.BadBody("is not valid JSON: %w", err)
			}
			continue
		}
		if !labels {
			if err := s.walkValue(dec, name); err != nil {
				return err
			}
			continue
		}
		if value, err := dec.Token(); err != nil || value == nil {
			return model.Errorf(model.ErrInvalid, "%s: label %q: must have a text", field, name)
		}
	}
	if _, err := dec.Token(); err != nil {
		return strictjson.BadBody("is not valid JSON: %w", err)
	}
	if labels && len(seen) == 0 {
		return s.emptyField(field)
	}
	return nil
}
