package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/internal/model"
)

// maxShown is how many bytes of wrong input a refusal repeats.
const maxShown = 40

// Decode reads data, which must be one JSON object in UTF-8 and nothing else, into out.
// Errors are of kind model.ErrInvalid.
func Decode(data []byte, out any) error {
	if !utf8.Valid(data) {
		return BadBody("must be UTF-8")
	}
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		return BadBody("must not be empty: a JSON object is expected")
	case trimmed[0] != '{' && json.Valid(trimmed):
		return BadBody("must be a JSON object, not %s", jsonKind(trimmed))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil {
		return explain(data, err)
	}
	if rest := bytes.TrimSpace(data[dec.InputOffset():]); len(rest) > 0 {
		return BadBody("must end after the JSON object, but %q follows", clip(rest))
	}
	return nil
}

// Read is Decode of at most limit bytes of a reader.
func Read(r io.Reader, limit int64, out any) error {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return model.Errorf(model.ErrInvalid, "body: could not be read: %w", err)
	case int64(len(data)) > limit:
		return BadBody("must be at most %d bytes", limit)
	}
	return Decode(data, out)
}

// BadBody is that a body as a whole is wrong.
func BadBody(format string, args ...any) error {
	return model.Errorf(model.ErrInvalid, "body: "+format, args...)
}

func clip(b []byte) string {
	if len(b) > maxShown {
		return strings.ToValidUTF8(string(b[:maxShown]), "") + "..."
	}
	return string(b)
}

func jsonKind(b []byte) string {
	switch b[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// explain puts what encoding/json says into a user's terms.
func explain(data []byte, err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type of its own
		return model.Errorf(model.ErrInvalid, "field %s: there is no such field", field)
	}
	switch {
	case errors.As(err, &wrong):
		raw := Field(data, wrong.Field)
		if raw == nil { // below the elements of an array
			return BadBody("%s: must be %s, not %s", wrong.Field, goKind(wrong), valueKind(wrong))
		}
		want := "must be " + goKind(wrong)
		switch {
		case strings.HasPrefix(wrong.Value, "number "): // a number, but not one that fits
		case raw[0] == '[' && wrong.Value != "array", raw[0] == '{' && wrong.Value != "object":
			want = "every element " + want
		default:
			want += ", not " + jsonKind(raw)
		}
		shown := string(raw)
		_ = json.Unmarshal(raw, &shown) // a string is shown without its quotes
		return model.InvalidField(lastPart(wrong.Field), shown, want)
	case errors.As(err, &syntax):
		return BadBody("is not valid JSON: %s at byte %d", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return BadBody("is not valid JSON: it ends too early, after %d bytes", len(data))
	}
	return BadBody("is not what is expected: %w", err)
}

// Field finds the text of a field, whose path has dots, in a JSON object.
// Names match as encoding/json matches them: in any case. It is nil when there
// is no such field, as with the elements of arrays.
func Field(data []byte, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		_ = json.NewDecoder(bytes.NewReader(data)).Decode(&object) // other values have no fields
		raw, ok := object[name]
		for k, v := range object {
			if !ok && strings.EqualFold(k, name) {
				raw = v
			}
		}
		data = raw
	}
	return bytes.TrimSpace(data)
}

func lastPart(field string) string {
	return field[strings.LastIndexByte(field, '.')+1:]
}

// goKind says in JSON's terms what a field of a Go type wants.
func goKind(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(e.Value, "number "):
		return "a whole number of reasonable size"
	case kind == "string":
		return "a string"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	case kind == "slice":
		return "an array"
	case kind == "bool":
		return "true or false"
	default:
		return "an object"
	}
}

// valueKind says in JSON's terms what was found, as jsonKind does.
func valueKind(e *json.UnmarshalTypeError) string {
	switch e.Value {
	case "array", "object":
		return "an " + e.Value
	case "bool":
		return "a boolean"
	}
	return "a " + e.Value // "string", "number", "number 1.5"
}
