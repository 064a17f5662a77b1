package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// unambiguous refuses what would mean more than it looks like in a policy: a name
// that an object has twice, in whatever case, of which the last would count; and
// fields that are there and empty, which are those of a template that has found
// nothing, and would mean anybody. body is valid JSON.
func unambiguous(body []byte) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	return walkValue(dec, "")
}

// openIfEmpty are the fields that stand for all when they are left out.
var openIfEmpty = map[string]bool{
	"applies": true, "peers": true, "ports": true, "group": true, "network": true, "cidr": true, "except": true, "matchLabels": true, "matchExpressions": true, "values": true,
}

const labelsField = "matchLabels"

// elementOf stands before the name of a list, as the name of its elements.
const elementOf = "element of "

// walkValue reads one value, of the field of a name.
func walkValue(dec *json.Decoder, field string) error {
	token, err := dec.Token()
	if err != nil {
		return badBody("is not valid JSON: %w", err)
	}
	switch token {
	case json.Delim('{'):
		return walkObject(dec, field)
	case json.Delim('['):
		n := 0
		for ; dec.More(); n++ {
			if err := walkValue(dec, elementOf+field); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return badBody("is not valid JSON: %w", err)
		}
		if n == 0 {
			return emptyField(field)
		}
	case nil, "":
		if list, element := strings.CutPrefix(field, elementOf); element && token == nil {
			return model.Errorf(model.ErrInvalid, "%s: must not have null among its elements", list)
		}
		return emptyField(field)
	}
	return nil
}

// emptyField refuses a field that is there and empty, if that would mean all.
func emptyField(field string) error {
	if !openIfEmpty[field] {
		return nil
	}
	return model.Errorf(model.ErrInvalid, "%s: must not be empty: leave it out, if all are meant", field)
}

func walkObject(dec *json.Decoder, field string) error {
	seen := map[string]string{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return badBody("is not valid JSON: %w", err)
		}
		name := fmt.Sprint(token)
		same := strings.ToLower(name)
		if field == labelsField { // labels differ by case
			same = name
		}
		if other, twice := seen[same]; twice {
			return badBody("has the field %q twice in one object, as %q too: which of them counts is not clear", other, name)
		}
		seen[same] = name
		if field != labelsField {
			if err := walkValue(dec, name); err != nil {
				return err
			}
			continue
		}
		if value, err := dec.Token(); err != nil || value == nil {
			return model.Errorf(model.ErrInvalid, "%s: label %q: must have a text", labelsField, name)
		}
	}
	if _, err := dec.Token(); err != nil {
		return badBody("is not valid JSON: %w", err)
	}
	if field == labelsField && len(seen) == 0 {
		return emptyField(field)
	}
	return nil
}
