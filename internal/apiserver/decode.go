package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/internal/model"
)

// MaxBody is the largest request body, in bytes: several times what the
// largest group or endpoint needs.
const MaxBody = 1 << 20

// decode reads a request's body as one JSON object into out, and returns it. Unknown fields
// are ignored, since agents may be newer; anything else that is wrong is refused
// with the field's name. Objects of kinds are read by decodeStrict.
func decode(w http.ResponseWriter, r *http.Request, out any) (body []byte, err error) {
	return decodeUpTo(w, r, out, MaxBody)
}

// decodeUpTo is decode with another limit, in bytes.
func decodeUpTo(w http.ResponseWriter, r *http.Request, out any, limit int64) (body []byte, err error) {
	if r.Body == nil {
		return nil, badBody("must not be empty: a JSON object is expected")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, model.Errorf(errTooLarge, "body: must be at most %d bytes", large.Limit)
		}
		return nil, model.Errorf(model.ErrInvalid, "body: could not be read: %w", err)
	}
	return data, decodeJSON(data, out)
}

func badBody(format string, args ...any) error {
	return model.Errorf(model.ErrInvalid, "body: "+format, args...)
}

func decodeJSON(data []byte, out any) error {
	if !utf8.Valid(data) {
		return badBody("must be UTF-8")
	}
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		return badBody("must not be empty: a JSON object is expected")
	case trimmed[0] != '{' && json.Valid(trimmed):
		return badBody("must be a JSON object, not %s", jsonKind(trimmed))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(out); err != nil {
		return jsonError(data, err)
	}
	if rest := bytes.TrimSpace(data[dec.InputOffset():]); len(rest) > 0 {
		return badBody("must end after the JSON object, but %q follows", clip(rest))
	}
	return nil
}

func clip(b []byte) string {
	if len(b) > 40 {
		return strings.ToValidUTF8(string(b[:40]), "") + "..."
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

// jsonError puts what encoding/json says into a user's terms.
func jsonError(data []byte, err error) error {
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		raw := rawField(data, wrong.Field)
		if raw == nil { // below the elements of an array
			return badBody("%s: must be %s, not %s", wrong.Field, goKind(wrong), valueKind(wrong))
		}
		want := "must be " + goKind(wrong)
		switch {
		case strings.HasPrefix(wrong.Value, "number "): // a number, but not one that fits
		case raw[0] == '[' && wrong.Value != "array", raw[0] == '{' && wrong.Value != "object":
			want = "every element " + want
		default:
			want += ", not " + jsonKind(raw)
		}
		return model.InvalidField(lastPart(wrong.Field), string(raw), want)
	case errors.As(err, &syntax):
		return badBody("is not valid JSON: %s at byte %d", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badBody("is not valid JSON: it ends too early, after %d bytes", len(data))
	}
	return badBody("is not what is expected: %w", err)
}

// rawField finds the text of a field, whose path has dots, in a JSON object.
// Names match as encoding/json matches them: in any case. It is nil when there
// is no such field, as with the elements of arrays.
func rawField(data []byte, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.NewDecoder(bytes.NewReader(data)).Decode(&object) != nil {
			return nil
		}
		raw, ok := object[name]
		for k, v := range object {
			if !ok && strings.EqualFold(k, name) {
				raw, ok = v, true
			}
		}
		if !ok {
			return nil
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

// requireJSON accepts a missing Content-Type and the one that curl -d sends, as
// old clients do, and any JSON one; text/plain, which a page's form can send
// without asking, charsets other than JSON's and compressed bodies are refused.
func requireJSON(r *http.Request) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return model.Errorf(errMediaType, "Content-Encoding %q: bodies are taken uncompressed only", clip([]byte(enc)))
	}
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return nil
	}
	t, params, err := mime.ParseMediaType(ct)
	if err != nil || t != "application/json" && !strings.HasSuffix(t, "+json") &&
		t != "application/x-www-form-urlencoded" && t != "application/octet-stream" {
		return model.Errorf(errMediaType, "Content-Type %q: must be application/json", ct)
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
	default:
		return model.Errorf(errMediaType, "Content-Type %q: bodies are taken in UTF-8 only", ct)
	}
	return nil
}

// checkKey refuses a body whose fields do not build the key of the path.
func checkKey(path, fields string) error {
	if path != fields {
		return &model.FieldError{Field: "key", Value: clip([]byte(path)), Want: fmt.Sprintf("must equal the key that the body's fields build, %q", clip([]byte(fields)))}
	}
	return nil
}
