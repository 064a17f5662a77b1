package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// A record is stored as {"v":<version>,"d":{...}}. The version grows when a
// change of the fields would make an older program misread or lose something.

type record[V any] struct {
	V int `json:"v"`
	D V   `json:"d"`
}

type rawRecord struct {
	V int             `json:"v"`
	D json.RawMessage `json:"d"`
}

// EncodeRecord returns the stored form of a value at a version of its record.
func EncodeRecord[V any](version int, v V) ([]byte, error) {
	b, err := json.Marshal(record[V]{V: version, D: v})
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

// DecodeRecord returns the value and the version that it was written with,
// which may be newer than what this program writes; fields unknown here are
// skipped.
func DecodeRecord[V any](b []byte) (V, int, error) {
	var r record[V]
	if err := json.Unmarshal(b, &r); err != nil {
		return r.D, 0, fmt.Errorf("decode record: %w", err)
	}
	if r.V < 1 {
		return r.D, 0, fmt.Errorf("decode record: there is no version %d", r.V)
	}
	return r.D, r.V, nil
}

// ReplaceRecord returns the stored form of v in place of old, with fields of
// old that V does not know kept. It fails with ErrNewerRecord when old is of a
// newer version, or has unknown fields where they cannot be kept (inside lists
// and maps).
func ReplaceRecord[V any](version int, old []byte, v V) ([]byte, error) {
	var was rawRecord
	if err := json.Unmarshal(old, &was); err != nil {
		return nil, fmt.Errorf("decode record: %w", err)
	}
	if was.V > version {
		return nil, ErrNewerRecord
	}
	if hasAllFields[V](was.D) {
		return EncodeRecord(version, v)
	}
	d, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	if d, err = keepUnknown(reflect.TypeFor[V](), was.D, d); err != nil {
		return nil, err
	}
	b, err := json.Marshal(rawRecord{V: version, D: d})
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

func hasAllFields[V any](d json.RawMessage) bool {
	dec := json.NewDecoder(bytes.NewReader(d))
	dec.DisallowUnknownFields()
	var v V
	return dec.Decode(&v) == nil
}

// keepUnknown copies the members of object old that type t has no field for
// into object cur, and does the same for fields that are structs themselves.
func keepUnknown(t reflect.Type, old, cur json.RawMessage) (json.RawMessage, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || opaque(t) {
		if hasAllFieldsOf(t, old) {
			return cur, nil
		}
		return nil, ErrNewerRecord
	}
	var was, now map[string]json.RawMessage
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(cur, &now) != nil || was == nil || now == nil {
		return cur, nil //nolint:nilerr // not objects: null, or another kind before; nothing to keep
	}
	fields := jsonFields(t)
	for name, value := range was {
		ft, known := fields[strings.ToLower(name)] // encoding/json matches names without case
		switch {
		case !known:
			now[name] = value
		case now[name] == nil || hasAllFieldsOf(ft, value):
			// gone on purpose, or nothing unknown inside
		default:
			kept, err := keepUnknown(ft, value, now[name])
			if err != nil {
				return nil, err
			}
			now[name] = kept
		}
	}
	return json.Marshal(now)
}

func hasAllFieldsOf(t reflect.Type, d json.RawMessage) bool {
	dec := json.NewDecoder(bytes.NewReader(d))
	dec.DisallowUnknownFields()
	return dec.Decode(reflect.New(t).Interface()) == nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func opaque(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

// jsonFields returns the types of a struct's JSON members by lower-case name.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[strings.ToLower(name)] = f.Type
	}
	return fields
}
